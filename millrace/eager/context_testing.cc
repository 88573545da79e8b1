#include "millrace/eager/context_testing.h"

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/ops/register_ops.h"

namespace millrace::eager {

Ref<EagerContext> make_test_context() {
  MR_CHECK_OK(register_ops());
  ContextOptions options;
  const DeviceName task = DeviceName::parse("/job:localhost/replica:0/task:0").value();
  options.devices = make_cpu_devices(task, 1).value();
  return EagerContext::create(std::move(options)).value();
}

TensorRef EagerTest::run(std::string_view op, std::vector<TensorRef> inputs, AttrMap attrs) {
  Result<TensorRef> out = context_->execute_one(op, std::move(inputs), std::move(attrs));
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return out.ok() ? *out : context_->tensor(Tensor::vector<float>({}));
}

std::vector<float> EagerTest::values(const TensorRef& tensor) {
  if (!tensor || tensor->dtype() != DType::kFloat) {
    ADD_FAILURE() << "not a float tensor";
    return {};
  }
  const std::span<const float> elements = tensor->tensor().data<float>();
  return {elements.begin(), elements.end()};
}

}  // namespace millrace::eager
