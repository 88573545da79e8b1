#pragma once

#include <string>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/tensor/dtype.h"
#include "millrace/tensor/partial_shape.h"

namespace millrace {

// What an element of a resource tensor holds: the name of an object in a device's resource manager,
// not the object.
struct ResourceHandle {
  std::string device;  // full name of the device that owns it
  std::string container;
  std::string name;
  std::string type_name;  // "Variable", "Queue", ...
  struct DTypeAndShape {
    DType dtype = DType::kInvalid;
    PartialShape shape;
    friend bool operator==(const DTypeAndShape&, const DTypeAndShape&) = default;
  };
  // What shape inference knows of the object's contents.
  std::vector<DTypeAndShape> contents;

  friend bool operator==(const ResourceHandle&, const ResourceHandle&) = default;
};

template <>
inline constexpr DType dtype_of<ResourceHandle> = DType::kResource;

}  // namespace millrace
