#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace prism::dist {

using at::Tensor;

// A range of elements of a parameter, in the order of memory, and the process that steps it.
struct Part {
  size_t parameter = 0;
  int64_t begin = 0, size = 0;
  int64_t owner = 0;

  // The range of a contiguous tensor that begins with element `first` of the parameter: a flat view.
  Tensor of(const Tensor& tensor, int64_t first = 0) const { return tensor.view(-1).narrow(0, begin - first, size); }
};

// A parameter that is stepped element by element may be cut at multiples of so many elements: at most 64 pieces of at
// least 1,024 elements, whatever the number of processes.
int64_t unit_of(int64_t elements);

// Cuts a parameter into at most `ranks` ranges of whole units, about equal; rank 0 owns the first elements.
std::vector<Part> cut(size_t parameter, int64_t elements, int64_t ranks);

// Returns true if a part is all of its parameter.
inline bool is_whole(const Part& part, const Tensor& parameter) { return part.size == parameter.numel(); }

// The tensor of each parameter that process `rank` steps: the parameter itself, a flat tensor that shares the memory of
// its part, or none. A process steps at most one part of a parameter.
std::vector<Tensor> stepped_by(int64_t rank, const std::vector<Tensor>& parameters, const std::vector<Part>& parts);

// Some parts that travel together, one after the other in a flat tensor: those of rank 0 first.
struct FlatParts {
  struct Place {
    Part part;
    int64_t begin;  // in the flat tensor
  };
  FlatParts(std::vector<Part> parts, int64_t ranks);

  std::vector<Place> places;
  std::vector<int64_t> counts;  // elements of the flat tensor that belong to each rank
  int64_t size = 0;             // of the flat tensor
};

// Rounds a number of elements up to whole cache lines: every part begins on one, as a tensor by itself does.
int64_t aligned(int64_t elements);

}  // namespace prism::dist
