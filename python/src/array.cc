#include "python/src/array.h"

#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include "millrace/tensor/complex.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/variant.h"
#include "python/src/gil.h"
#include "python/src/status.h"

namespace millrace::python {

namespace {

// Filled by register_dtypes: by number, references from kRefOffset on.
PyObject* dtype_objects[kRefOffset + kNumDTypes] = {};

// The NumPy type whose elements have the same bits; NPY_NOTYPE when there is none.
int numpy_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return NPY_FLOAT;
    case DType::kDouble:
      return NPY_DOUBLE;
    case DType::kHalf:
      return NPY_HALF;
    case DType::kInt8:
      return NPY_INT8;
    case DType::kInt16:
      return NPY_INT16;
    case DType::kInt32:
      return NPY_INT32;
    case DType::kInt64:
      return NPY_INT64;
    case DType::kUInt8:
      return NPY_UINT8;
    case DType::kUInt16:
      return NPY_UINT16;
    case DType::kUInt32:
      return NPY_UINT32;
    case DType::kUInt64:
      return NPY_UINT64;
    case DType::kBool:
      return NPY_BOOL;
    case DType::kComplex64:
      return NPY_COMPLEX64;
    case DType::kComplex128:
      return NPY_COMPLEX128;
    default:
      return NPY_NOTYPE;
  }
}

DType type_of_numpy(int type) {
  switch (type) {
    case NPY_FLOAT:
      return DType::kFloat;
    case NPY_DOUBLE:
      return DType::kDouble;
    case NPY_HALF:
      return DType::kHalf;
    case NPY_BOOL:
      return DType::kBool;
    case NPY_BYTE:
      return DType::kInt8;
    case NPY_UBYTE:
      return DType::kUInt8;
    case NPY_SHORT:
      return DType::kInt16;
    case NPY_USHORT:
      return DType::kUInt16;
    case NPY_INT:
      return DType::kInt32;
    case NPY_UINT:
      return DType::kUInt32;
    case NPY_LONG:
      return sizeof(long) == 8 ? DType::kInt64 : DType::kInt32;
    case NPY_ULONG:
      return sizeof(long) == 8 ? DType::kUInt64 : DType::kUInt32;
    case NPY_LONGLONG:
      return DType::kInt64;
    case NPY_ULONGLONG:
      return DType::kUInt64;
    case NPY_CFLOAT:
      return DType::kComplex64;
    case NPY_CDOUBLE:
      return DType::kComplex128;
    case NPY_OBJECT:
    case NPY_STRING:
    case NPY_UNICODE:
      return DType::kString;
    default:
      return DType::kInvalid;
  }
}

PyArrayObject* as_array(nb::handle h) { return reinterpret_cast<PyArrayObject*>(h.ptr()); }

Shape shape_of(PyArrayObject* array) {
  const int rank = PyArray_NDIM(array);
  std::vector<int64_t> dims(PyArray_DIMS(array), PyArray_DIMS(array) + rank);
  return unwrap_value(Shape::make(dims));
}

// Appends the bytes of a str or bytes object; false, with an exception set, for anything else.
bool read_text(PyObject* value, std::string& out) {
  if (PyBytes_Check(value)) {
    out.assign(PyBytes_AS_STRING(value), static_cast<size_t>(PyBytes_GET_SIZE(value)));
    return true;
  }
  if (PyUnicode_Check(value)) {
    Py_ssize_t size;
    const char* data = PyUnicode_AsUTF8AndSize(value, &size);
    if (data == nullptr) return false;
    out.assign(data, static_cast<size_t>(size));
    return true;
  }
  PyErr_Format(PyExc_TypeError,
               "Expected bytes or str as an element of a string tensor, got %R of type '%s'", value,
               Py_TYPE(value)->tp_name);
  return false;
}

Tensor strings_from_array(nb::handle array) {
  nb::object objects = nb::borrow(array);
  if (PyArray_TYPE(as_array(array)) != NPY_OBJECT) {
    objects = nb::steal(PyArray_Cast(as_array(array), NPY_OBJECT));
    if (!objects.is_valid()) throw nb::python_error();
  }
  objects = nb::steal(PyArray_FROM_OF(objects.ptr(), NPY_ARRAY_CARRAY_RO));
  if (!objects.is_valid()) throw nb::python_error();
  Tensor tensor = unwrap(Tensor::allocate(DType::kString, shape_of(as_array(objects))));
  auto** source = static_cast<PyObject**>(PyArray_DATA(as_array(objects)));
  for (std::string& element : tensor.mutable_data<std::string>()) {
    if (!read_text(*source++, element)) throw nb::python_error();
  }
  return tensor;
}

// An array with the elements of `array` in row-major order, native bytes, aligned: itself if so.
nb::object plain_array(nb::handle array) {
  const int flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED;
  nb::object plain = nb::steal(PyArray_FROM_OF(array.ptr(), flags));
  if (!plain.is_valid()) throw nb::python_error();
  return plain;
}

// Drops a reference from any thread, also after the interpreter has gone.
void release(PyObject* object) {
  if (interpreter_ends()) return;
  WithGil gil;
  Py_DECREF(object);
}

// Elements of less than this many bytes are copied: cheaper than a shared owner.
constexpr size_t kSmall = 2048;

void free_tensor(PyObject* capsule) {
  delete static_cast<Tensor*>(PyCapsule_GetPointer(capsule, nullptr));
}

nb::object strings_to_array(const Tensor& tensor) {
  auto bytes = [](const std::string& s) {
    return PyBytes_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
  };
  if (tensor.rank() == 0) return nb::steal(bytes(tensor.item<std::string>()));
  std::vector<npy_intp> dims(tensor.shape().dims().begin(), tensor.shape().dims().end());
  nb::object array = nb::steal(PyArray_SimpleNew(tensor.rank(), dims.data(), NPY_OBJECT));
  if (!array.is_valid()) throw nb::python_error();
  auto** out = static_cast<PyObject**>(PyArray_DATA(as_array(array)));
  for (const std::string& s : tensor.data<std::string>()) {
    PyObject* element = bytes(s);
    if (element == nullptr) throw nb::python_error();
    Py_XSETREF(*out, element);
    ++out;
  }
  return array;
}

// An array of wrapped tensors: what Python sees of resources and variants.
nb::object opaque_to_array(const Tensor& tensor) {
  return library("millrace.core.dtypes", "opaque_value")(text(tensor.to_string(1)));
}

nb::object descriptor(DType dtype) {
  const int type = numpy_type(dtype);
  if (type != NPY_NOTYPE)
    return nb::steal(reinterpret_cast<PyObject*>(PyArray_DescrFromType(type)));
  return nb::borrow(nb::handle(dtype_objects[static_cast<int>(dtype)]).attr("_storage_dtype"));
}

[[noreturn]] void refuse(nb::handle array, DType expected) {
  PyErr_Format(PyExc_TypeError, "A tensor of type %s cannot be made from a NumPy array of type %S",
               dtype_name(expected).c_str(),
               reinterpret_cast<PyObject*>(PyArray_DESCR(as_array(array))));
  throw nb::python_error();
}

}  // namespace

nb::handle dtype_object(DType dtype) {
  const int number = static_cast<int>(dtype);
  return number >= 0 && number < static_cast<int>(std::size(dtype_objects))
             ? nb::handle(dtype_objects[number])
             : nb::handle();
}

DType dtype_from_object(nb::handle object) {
  nb::object dtype = nb::borrow(object);
  if (nb::handle(object.type()).ptr() != library("millrace.core.dtypes", "DType").ptr()) {
    dtype = library("millrace.core.dtypes", "as_dtype")(object);
  }
  return static_cast<DType>(nb::cast<int>(dtype.attr("_number")));
}

Tensor tensor_from_array(nb::handle array, DType expected, Sharing sharing) {
  if (!PyArray_Check(array.ptr())) {
    nb::object made = nb::steal(PyArray_FROM_O(array.ptr()));
    if (!made.is_valid()) throw nb::python_error();
    return tensor_from_array(made, expected, sharing);
  }
  const int type = PyArray_TYPE(as_array(array));
  DType dtype = type_of_numpy(type);
  if (expected == DType::kResource || expected == DType::kVariant) refuse(array, expected);
  if (dtype == DType::kString) return strings_from_array(array);
  if (dtype == DType::kInvalid ||
      (expected != DType::kInvalid && numpy_type(expected) == NPY_NOTYPE)) {
    // Types that NumPy has no numbers for come as their storage.
    nb::object read = library("millrace.core.dtypes", "read_special")(nb::borrow(array),
                                                                      static_cast<int>(expected));
    nb::tuple parts = nb::cast<nb::tuple>(read);
    Tensor bits = tensor_from_array(parts[0], DType::kInvalid, sharing);
    const auto special = static_cast<DType>(nb::cast<int>(parts[1]));
    if (!is_plain(special) || !is_plain(bits.dtype()) ||
        dtype_size(special) != dtype_size(bits.dtype())) {
      refuse(array, special);
    }
    return bits.bit_cast_to(special);
  }
  nb::object plain = plain_array(array);
  Shape shape = shape_of(as_array(plain));
  const void* data = PyArray_DATA(as_array(plain));
  const auto bytes = static_cast<size_t>(PyArray_NBYTES(as_array(plain)));
  const bool own_copy = plain.ptr() != array.ptr();
  if (bytes < kSmall || (sharing == Sharing::kCopy && !own_copy)) {
    Tensor tensor = unwrap(Tensor::allocate(dtype, std::move(shape)));
    if (bytes > 0) std::memcpy(tensor.mutable_raw(), data, bytes);
    return tensor;
  }
  PyObject* owner = plain.release().ptr();
  return Tensor(dtype, shape, Buffer::borrow(data, bytes, [owner] { release(owner); }));
}

nb::object array_from_tensor(Tensor tensor) {
  const DType dtype = tensor.dtype();
  if (dtype == DType::kString) return strings_to_array(tensor);
  if (!is_plain(dtype)) return opaque_to_array(tensor);
  if (dtype == DType::kBFloat16) {
    // NumPy has no such numbers: float32 holds them all.
    nb::object bits = array_from_tensor(tensor.bit_cast_to(DType::kUInt16));
    return library("millrace.core.dtypes", "from_bfloat16_bits")(bits);
  }
  nb::object descr = descriptor(dtype);
  if (tensor.rank() == 0) {
    PyObject* scalar = PyArray_Scalar(tensor.mutable_raw(),
                                      reinterpret_cast<PyArray_Descr*>(descr.ptr()), nullptr);
    if (scalar == nullptr) throw nb::python_error();
    return nb::steal(scalar);
  }
  npy_intp dims[NPY_MAXDIMS];
  if (tensor.rank() > 32) check(invalid_argument("NumPy has no arrays of rank ", tensor.rank()));
  for (int i = 0; i < tensor.rank(); ++i) dims[i] = tensor.dim(i);
  const int rank = tensor.rank();
  auto* type = reinterpret_cast<PyArray_Descr*>(descr.release().ptr());  // the array takes it
  if (tensor.bytes() < kSmall || !tensor.writable()) {
    nb::object array = nb::steal(
        PyArray_NewFromDescr(&PyArray_Type, type, rank, dims, nullptr, nullptr, 0, nullptr));
    if (!array.is_valid()) throw nb::python_error();
    if (tensor.bytes() > 0)
      std::memcpy(PyArray_DATA(as_array(array)), tensor.raw(), tensor.bytes());
    return array;
  }
  auto* owner = new Tensor(std::move(tensor));
  nb::object capsule = nb::steal(PyCapsule_New(owner, nullptr, free_tensor));
  nb::object array = nb::steal(PyArray_NewFromDescr(
      &PyArray_Type, type, rank, dims, nullptr, owner->mutable_raw(), NPY_ARRAY_CARRAY, nullptr));
  if (!array.is_valid() || PyArray_SetBaseObject(as_array(array), capsule.release().ptr()) != 0) {
    throw nb::python_error();
  }
  return array;
}

nb::object array_from_fetch(Tensor tensor) {
  switch (tensor.dtype()) {
    case DType::kQInt8:
      tensor = tensor.bit_cast_to(DType::kInt8);
      break;
    case DType::kQUInt8:
      tensor = tensor.bit_cast_to(DType::kUInt8);
      break;
    case DType::kQInt16:
      tensor = tensor.bit_cast_to(DType::kInt16);
      break;
    case DType::kQUInt16:
      tensor = tensor.bit_cast_to(DType::kUInt16);
      break;
    case DType::kQInt32:
      tensor = tensor.bit_cast_to(DType::kInt32);
      break;
    default:
      break;
  }
  return array_from_tensor(std::move(tensor));
}

bool tensor_from_scalar(nb::handle value, DType dtype, Tensor& out) {
  PyObject* p = value.ptr();
  if (PyFloat_CheckExact(p)) {
    const double number = PyFloat_AS_DOUBLE(p);
    switch (dtype) {
      case DType::kInvalid:
      case DType::kFloat:
        out = Tensor::scalar(static_cast<float>(number));
        return true;
      case DType::kDouble:
        out = Tensor::scalar(number);
        return true;
      default:
        return false;
    }
  }
  if (PyBool_Check(p)) {
    if (dtype != DType::kInvalid && dtype != DType::kBool) return false;
    out = Tensor::scalar(p == Py_True);
    return true;
  }
  if (PyLong_CheckExact(p)) {
    int overflow = 0;
    const int64_t number = PyLong_AsLongLongAndOverflow(p, &overflow);
    if (overflow != 0) return false;
    switch (dtype) {
      case DType::kInvalid:
      case DType::kInt32:
        if (number < INT32_MIN || number > INT32_MAX) return false;
        out = Tensor::scalar(static_cast<int32_t>(number));
        return true;
      case DType::kInt64:
        out = Tensor::scalar(number);
        return true;
      case DType::kFloat:
        out = Tensor::scalar(static_cast<float>(number));
        return true;
      case DType::kDouble:
        out = Tensor::scalar(static_cast<double>(number));
        return true;
      default:
        return false;
    }
  }
  return false;
}

namespace {

// What `number` gives for each item, as a vector of T. `number` is false for one that does not fit.
template <class T, class Number>
bool fill_vector(std::span<PyObject* const> items, const Number& number, Tensor& out) {
  const Shape shape = {static_cast<int64_t>(items.size())};
  Tensor made = unwrap(Tensor::allocate(dtype_of<T>, shape));
  T* to = made.template mutable_data<T>().data();
  for (PyObject* item : items) {
    if (!number(item, to++)) return false;
  }
  out = std::move(made);
  return true;
}

template <class T>
bool vector_of_ints(std::span<PyObject* const> items, Tensor& out) {
  const auto number = [](PyObject* item, T* to) {
    int overflow = 0;
    if (!PyLong_CheckExact(item)) return false;
    const int64_t value = PyLong_AsLongLongAndOverflow(item, &overflow);
    *to = static_cast<T>(value);
    return overflow == 0 && (!std::is_same_v<T, int32_t> || *to == value);
  };
  return fill_vector<T>(items, number, out);
}

template <class T>
bool vector_of_floats(std::span<PyObject* const> items, Tensor& out) {
  const auto number = [](PyObject* item, T* to) {
    if (!PyFloat_CheckExact(item)) return false;
    *to = static_cast<T>(PyFloat_AS_DOUBLE(item));
    return true;
  };
  return fill_vector<T>(items, number, out);
}

}  // namespace

bool tensor_from_numbers(nb::handle value, DType dtype, Tensor& out) {
  PyObject* p = value.ptr();
  if (!PyList_CheckExact(p) && !PyTuple_CheckExact(p)) return false;
  const std::span<PyObject* const> items(PySequence_Fast_ITEMS(p),
                                         static_cast<size_t>(PySequence_Fast_GET_SIZE(p)));
  if (items.empty()) return false;
  const bool any = dtype == DType::kInvalid;
  if (PyLong_CheckExact(items[0])) {
    if (any || dtype == DType::kInt32) return vector_of_ints<int32_t>(items, out);
    return dtype == DType::kInt64 && vector_of_ints<int64_t>(items, out);
  }
  if (any || dtype == DType::kFloat) return vector_of_floats<float>(items, out);
  return dtype == DType::kDouble && vector_of_floats<double>(items, out);
}

void bind_arrays(nb::module_& m) {
  if (_import_array() < 0) throw nb::python_error();
  m.def("register_dtypes", [](const nb::dict& by_number) {
    for (auto [number, dtype] : by_number) {
      dtype_objects[nb::cast<int>(number)] = nb::borrow(dtype).release().ptr();
    }
  });
}

}  // namespace millrace::python
