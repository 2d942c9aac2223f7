"""Bounded Dyck languages: exact Transformers by construction, the balance condition, pruning."""
