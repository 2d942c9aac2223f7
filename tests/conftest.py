"""The suite runs in two processes, so each has one thread: small tensors gain nothing from more."""

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Shells start what runs in the background deaf to Ctrl-C, and children would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)
