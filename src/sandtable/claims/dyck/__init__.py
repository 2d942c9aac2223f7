"""Claims on bounded Dyck languages (Wen, Li, Liu & Risteski 2023): balance, attention that is no stack, pruning."""

CLAIMS = ()
