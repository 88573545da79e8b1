#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/tensor/resource_handle.h"

namespace millrace {

// Lasting state that ops share by name: variables, queues, random counters. A class derived from it
// has `static constexpr std::string_view kTypeName`.
class Resource : public RefCounted {
 public:
  // One line for people: "Variable float [10,10]".
  virtual std::string describe() const = 0;

  // How full it is at a moment.
  struct Fill {
    int64_t size = 0;
    int64_t capacity = -1;  // -1: no limit
    bool closed = false;    // nothing more comes
  };
  // For who watches what is filled and emptied, such as a queue; none: it is not of that kind.
  virtual std::optional<Fill> fill() const { return std::nullopt; }
};

// Resources by (container, type, name). Thread-safe; a resource lives while somebody holds it, also
// after it was removed here.
class ResourceManager : public RefCounted {
 public:
  static constexpr std::string_view kDefaultContainer = "localhost";

  ResourceManager();

  // NOT_FOUND naming container and name.
  template <class T>
  Result<Ref<T>> lookup(std::string_view container, std::string_view name) const {
    MR_TRY_ASSIGN(Ref<Resource> found, lookup_any(container, T::kTypeName, name));
    return Ref<T>(static_cast<T*>(found.get()));
  }
  // The resource of that name, made by `make` (called at most once, under no lock that resources
  // take) when there is none.
  template <class T>
  Result<Ref<T>> lookup_or_create(std::string_view container, std::string_view name,
                                  FunctionRef<Result<Ref<T>>()> make) {
    MR_TRY_ASSIGN(Ref<Resource> found, lookup_or_create_any(container, T::kTypeName, name,
                                                            [&]() -> Result<Ref<Resource>> {
                                                              MR_TRY_ASSIGN(Ref<T> made, make());
                                                              return Ref<Resource>(std::move(made));
                                                            }));
    return Ref<T>(static_cast<T*>(found.get()));
  }
  // ALREADY_EXISTS when the name is taken.
  template <class T>
  Status create(std::string_view container, std::string_view name, Ref<T> resource) {
    return create_any(container, T::kTypeName, name, Ref<Resource>(std::move(resource)));
  }
  template <class T>
  Status remove(std::string_view container, std::string_view name) {
    return remove_any(container, T::kTypeName, name);
  }

  // The name of a resource that belongs to one node of one session, in whichever container: a queue
  // without a shared name, the state of a random op. No name that a user gives begins with '_'.
  static std::string session_name(std::string_view session, std::string_view node);

  // Drops everything in a container. OK when there is none of that name.
  void clear_container(std::string_view container);
  // Drops what has a session_name() of this session, in all containers.
  void clear_session(std::string_view session);
  void clear();

  struct Entry {
    std::string container, type, name, description;
    std::optional<Resource::Fill> fill;
  };
  // All resources, sorted.
  std::vector<Entry> list() const;

  Result<Ref<Resource>> lookup_any(std::string_view container, std::string_view type,
                                   std::string_view name) const;
  Status remove_any(std::string_view container, std::string_view type, std::string_view name);

 protected:
  ~ResourceManager() override;

 private:
  Result<Ref<Resource>> lookup_or_create_any(std::string_view container, std::string_view type,
                                             std::string_view name,
                                             FunctionRef<Result<Ref<Resource>>()> make);
  Status create_any(std::string_view container, std::string_view type, std::string_view name,
                    Ref<Resource> resource);

  struct Impl;
  Impl* impl_;
};

}  // namespace millrace
