// The one place where C++ meets Python. Nothing else in csrc knows of Python objects.
#include <pybind11/pybind11.h>

PYBIND11_MODULE(_csrc, module) { module.doc() = "CPU kernels of the embedded engine."; }
