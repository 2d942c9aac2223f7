"""The suite runs in two processes, so each has one thread: small tensors gain nothing from more."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
