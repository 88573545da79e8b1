#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <vector>

// What the definitions of ops and kernels are written with. There are some thousand of them, and
// each is code that runs once: these types keep it small.

namespace millrace {

// A text that lives as long as the process: a literal, or a copy that is never freed.
class SpecText : public std::string_view {
 public:
  constexpr SpecText() = default;
  template <size_t kSize>
  constexpr SpecText(const char (&literal)[kSize])  // NOLINT(google-explicit-constructor)
      : std::string_view(literal, kSize - 1) {}
  template <std::convertible_to<std::string_view> T>
  SpecText(const T& text)  // NOLINT(google-explicit-constructor)
      : std::string_view(keep(text)) {}

 private:
  static std::string_view keep(std::string_view text);
};

// A vector whose special members are compiled once: declare `extern template class SpecList<T>` for
// each T, and instantiate it in one .cc.
template <class T>
class SpecList : public std::vector<T> {
 public:
  SpecList();
  SpecList(std::initializer_list<T> items);
  SpecList(const std::vector<T>& items);  // NOLINT(google-explicit-constructor)
  SpecList(const SpecList& other);
  SpecList(SpecList&& other) noexcept;
  SpecList& operator=(const SpecList& other);
  SpecList& operator=(SpecList&& other) noexcept;
  ~SpecList();
};

template <class T>
SpecList<T>::SpecList() = default;
template <class T>
SpecList<T>::SpecList(std::initializer_list<T> items) : std::vector<T>(items) {}
template <class T>
SpecList<T>::SpecList(const std::vector<T>& items) : std::vector<T>(items) {}
template <class T>
SpecList<T>::SpecList(const SpecList& other) = default;
template <class T>
SpecList<T>::SpecList(SpecList&& other) noexcept = default;
template <class T>
SpecList<T>& SpecList<T>::operator=(const SpecList& other) = default;
template <class T>
SpecList<T>& SpecList<T>::operator=(SpecList&& other) noexcept = default;
template <class T>
SpecList<T>::~SpecList() = default;

}  // namespace millrace
