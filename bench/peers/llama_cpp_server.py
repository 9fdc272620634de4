"""Serves a GGUF with llama.cpp (through xllamacpp). Runs in the peer's own environment and imports nothing else.

usage: python llama_cpp_server.py MODEL.gguf PORT THREADS CONTEXT SLOTS
"""

import sys
import threading

import xllamacpp

model, port, threads, context, slots = sys.argv[1], *map(int, sys.argv[2:6])
parameters = xllamacpp.CommonParams()
parameters.model.path = model
parameters.port = port
parameters.n_ctx = context
parameters.n_parallel = slots
parameters.cpuparams.n_threads = threads
parameters.cpuparams_batch.n_threads = threads
parameters.n_gpu_layers = 0
server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
threading.Event().wait()
