#pragma once

#include <atomic>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace millrace {

// Base of objects owned by counting their references. Starts with none; Ref<T> counts.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
  // Destroys the object when this was the last reference.
  void release() const {
    // A sole owner needs no locked instruction: nobody else can be adding a reference.
    if (unique() || count_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }
  // True when exactly one reference exists: whoever holds it may write.
  bool unique() const { return count_.load(std::memory_order_acquire) == 1; }

 protected:
  virtual ~RefCounted() = default;
  // How the last release ends the object; override for objects not made by `new`.
  virtual void destroy() const { delete this; }

 private:
  mutable std::atomic<int> count_{0};
};

// A counted reference to a T, or null. Copying counts; moving does not.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  explicit Ref(T* object) : object_(object) {
    if (object_ != nullptr) object_->retain();
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  template <class U>
    requires(std::is_convertible_v<U*, T*>)
  Ref(Ref<U> other) noexcept : object_(other.detach()) {}  // NOLINT(google-explicit-constructor)
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr) object_->release();
  }

  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  friend bool operator==(const Ref& a, const Ref& b) { return a.object_ == b.object_; }

  // Gives the reference up without releasing it; the caller owns one count.
  T* detach() { return std::exchange(object_, nullptr); }
  // Takes over one count that the caller owns.
  static Ref adopt(T* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }

 private:
  T* object_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace millrace
