// The two ends of an edge between devices. They run even when what they carry is dead: the news
// travels to the other side. What travels is in host memory: on a device with memory of its own
// they copy, unless their tensor is on the host already.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/kernel/rendezvous.h"

namespace millrace {
namespace {

// The parts of the key that a node knows; frame and iteration come with each run.
struct KeyParts {
  std::string prefix;  // "send;incarnation;recv;name"

  static Result<KeyParts> make(const KernelNode& node) {
    RendezvousKey key;
    MR_TRY_ASSIGN(key.send_device, node.attr<std::string>("send_device"));
    MR_TRY_ASSIGN(key.recv_device, node.attr<std::string>("recv_device"));
    MR_TRY_ASSIGN(key.tensor_name, node.attr<std::string>("tensor_name"));
    MR_TRY_ASSIGN(int64_t incarnation, node.attr<int64_t>("send_device_incarnation"));
    key.incarnation = static_cast<uint64_t>(incarnation);
    std::string text = key.to_string();
    MR_TRY_ASSIGN(RendezvousKey parsed, RendezvousKey::parse(text));
    return KeyParts{text.substr(0, text.rfind(';'))};
  }
  std::string key(const KernelContext& ctx) const {
    return str_cat(prefix, ";", ctx.frame(), ":", ctx.iteration());
  }
};

// Whether the tensor of `node`, with these flags of its memory, must be copied.
bool in_device_memory(const KernelNode& node, const std::vector<bool>& host) {
  return node.device != nullptr && node.device->info().own_memory && !(!host.empty() && host[0]);
}

class SendFromDevice : public AsyncKernel {
 public:
  explicit SendFromDevice(KeyParts parts) : parts_(std::move(parts)) {}

  void compute_async(KernelContext& ctx, Done done) const override {
    Ref<Rendezvous> rendezvous = ctx.step().rendezvous;
    if (rendezvous == nullptr) return done(internal("this step has no rendezvous"));
    std::string key = parts_.key(ctx);
    if (ctx.input_dead()) {
      Value dead;
      dead.set_dead();
      return done(rendezvous->send(key, std::move(dead)));
    }
    ctx.device().copy_to_host(ctx.input(0),
                              [rendezvous = std::move(rendezvous), key = std::move(key),
                               done = std::move(done)](Result<Tensor> copied) mutable {
                                if (!copied.ok()) return done(copied.status());
                                done(rendezvous->send(key, Value::of(std::move(*copied))));
                              });
  }

 private:
  KeyParts parts_;
};

class Send : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(KeyParts parts, KeyParts::make(node));
    if (in_device_memory(node, node.host_inputs)) {
      return std::unique_ptr<Kernel>(std::make_unique<SendFromDevice>(std::move(parts)));
    }
    return std::unique_ptr<Kernel>(std::make_unique<Send>(std::move(parts)));
  }
  explicit Send(KeyParts parts) : parts_(std::move(parts)) {}

  Status compute(KernelContext& ctx) const override {
    if (ctx.step().rendezvous == nullptr) return internal("this step has no rendezvous");
    Value value;
    if (ctx.input_dead()) {
      value.set_dead();
    } else {
      value = ctx.take_input(0);
      // The caller's memory may be gone by the time the other side reads it.
      if (value.tensor.buffer() && value.tensor.buffer()->borrowed()) {
        MR_TRY_ASSIGN(value.tensor, value.tensor.clone());
      }
    }
    return ctx.step().rendezvous->send(parts_.key(ctx), std::move(value));
  }

 private:
  KeyParts parts_;
};

class Recv : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(KeyParts parts, KeyParts::make(node));
    return std::make_unique<Recv>(std::move(parts), in_device_memory(node, node.host_outputs));
  }
  Recv(KeyParts parts, bool copies) : parts_(std::move(parts)), copies_(copies) {}

  void compute_async(KernelContext& ctx, Done done) const override {
    if (ctx.step().rendezvous == nullptr) return done(internal("this step has no rendezvous"));
    ctx.step().rendezvous->recv(
        parts_.key(ctx), ctx.step().cancel,
        [&ctx, copies = copies_, done = std::move(done)](Status status, Value value) mutable {
          if (status.ok() && copies && !value.dead()) {
            return copy_to_device(ctx, value.tensor, std::move(done));
          }
          if (status.ok()) ctx.set_output_value(0, std::move(value));
          done(std::move(status));
        });
  }

 private:
  static void copy_to_device(KernelContext& ctx, const Tensor& received, Done done) {
    ctx.device().copy_from_host(received,
                                [&ctx, done = std::move(done)](Result<Tensor> copied) mutable {
                                  if (!copied.ok()) return done(copied.status());
                                  ctx.set_output(0, std::move(*copied));
                                  done(ok_status());
                                });
  }

  KeyParts parts_;
  bool copies_;
};

}  // namespace

void register_send_recv(Registry& registry) {
  std::vector<OpSpec::Attr> attrs = {
      {"tensor_name", "string", "Names the edge."},
      {"send_device", "string"},
      {"send_device_incarnation", "int", "Changes when the sending device restarts."},
      {"recv_device", "string"},
      {"client_terminated", "bool = false", "The other end is the client, not a device."}};
  for (const char* host : {"", "Host"}) {
    const bool on_host = *host != '\0';
    std::string send = str_cat("_", host, "Send"), recv = str_cat("_", host, "Recv");
    registry.add({.name = send,
                  .doc = "Hands a tensor to the rendezvous of the step.",
                  .inputs = {{"tensor", on_host ? "host(T)" : "T"}},
                  .types = {{"T", {}}},
                  .attrs = attrs,
                  .traits = {.stateful = true, .send = true, .retains = 1},
                  .shape = shape_rules::no_outputs});
    registry.add({.name = recv,
                  .doc = "Takes a tensor from the rendezvous of the step.",
                  .outputs = {{"tensor", on_host ? "host(tensor_type)" : "tensor_type"}},
                  .types = {{"tensor_type", {}}},
                  .attrs = attrs,
                  .traits = {.stateful = true, .recv = true},
                  .shape = shape_rules::unknown});
    for (DeviceKind device : {DeviceKind::kAny, DeviceKind::kNull}) {
      registry.kernel<Send>(send, device);
      registry.kernel<Recv>(recv, device);
    }
  }
}

}  // namespace millrace
