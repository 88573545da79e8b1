#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

// Callables without <functional>.

namespace millrace {

template <class Signature>
class FunctionRef;

// A borrowed callable: two pointers, valid only while the callable lives. For parameters.
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> &&
             std::is_invocable_r_v<R, F&, Args...>)
  FunctionRef(F&& f)  // NOLINT(google-explicit-constructor)
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

template <class Signature>
class UniqueFunction;

// An owned, move-only callable. Small ones (up to 48 bytes) live inside it.
template <class R, class... Args>
class UniqueFunction<R(Args...)> {
 public:
  UniqueFunction() = default;
  UniqueFunction(std::nullptr_t) {}  // NOLINT(google-explicit-constructor)
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, UniqueFunction> &&
             std::is_invocable_r_v<R, std::remove_cvref_t<F>&, Args...>)
  UniqueFunction(F&& f) {  // NOLINT(google-explicit-constructor)
    using Held = std::remove_cvref_t<F>;
    if constexpr (kInline<Held>) {
      new (storage_) Held(std::forward<F>(f));
      table_ = &kInlineTable<Held>;
    } else {
      new (storage_) Held*(new Held(std::forward<F>(f)));
      table_ = &kHeapTable<Held>;
    }
  }
  UniqueFunction(UniqueFunction&& other) noexcept { take(other); }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~UniqueFunction() { reset(); }

  explicit operator bool() const { return table_ != nullptr; }
  // Must not be empty.
  R operator()(Args... args) { return table_->call(storage_, std::forward<Args>(args)...); }

 private:
  struct Table {
    R (*call)(void* storage, Args... args);
    void (*move)(void* from, void* to);  // constructs at `to`, ends the one at `from`
    void (*destroy)(void* storage);
  };
  static constexpr size_t kInlineBytes = 48;
  template <class F>
  static constexpr bool kInline =
      sizeof(F) <= kInlineBytes && alignof(F) <= alignof(std::max_align_t) &&
      std::is_nothrow_move_constructible_v<F>;
  template <class F>
  static constexpr Table kInlineTable = {
      [](void* s, Args... args) -> R { return (*static_cast<F*>(s))(std::forward<Args>(args)...); },
      [](void* from, void* to) {
        new (to) F(std::move(*static_cast<F*>(from)));
        static_cast<F*>(from)->~F();
      },
      [](void* s) { static_cast<F*>(s)->~F(); }};
  template <class F>
  static constexpr Table kHeapTable = {
      [](void* s, Args... args) -> R {
        return (**static_cast<F**>(s))(std::forward<Args>(args)...);
      },
      [](void* from, void* to) { new (to) F*(*static_cast<F**>(from)); },
      [](void* s) { delete *static_cast<F**>(s); }};

  void take(UniqueFunction& other) {
    table_ = std::exchange(other.table_, nullptr);
    if (table_ != nullptr) table_->move(other.storage_, storage_);
  }
  void reset() {
    if (table_ != nullptr) std::exchange(table_, nullptr)->destroy(storage_);
  }

  const Table* table_ = nullptr;
  alignas(std::max_align_t) unsigned char storage_[kInlineBytes];
};

}  // namespace millrace
