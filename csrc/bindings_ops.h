#pragma once

#include <pybind11/pybind11.h>

// Adds the operations on rows to the module; Team, Linear and Experts are bound before.
void bind_operations(pybind11::module_& module);
