#include "millrace/ops/register_ops.h"

#include <gtest/gtest.h>

#include <sstream>

#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

// The ops that the core promises.
constexpr char kPromised[] = R"(
Abs Add AddN All Any ApplyAdam ApplyCenteredRMSProp ApplyGradientDescent ApplyMomentum ApplyAdagrad
ApplyRMSProp ArgMax ArgMin Assert Assign AssignAdd AssignSub AvgPool AvgPoolGrad BatchMatMul BiasAdd
BiasAddGrad BroadcastGradientArgs Cast ComputeAccidentalHits ConcatOffset ConcatV2 Const ControlTrigger
Conv2D Conv2DBackpropFilter Conv2DBackpropInput Cumprod Cumsum DynamicPartition DynamicStitch Enter Equal
Exit Exp ExpandDims Fill Floor FloorDiv FloorMod Gather GatherNd Greater GreaterEqual Identity InTopK
InvertPermutation IsVariableInitialized L2Loss LRN LRNGrad Less LessEqual ListDiff Log Log1p LogSoftmax
LogUniformCandidateSampler LogicalAnd LogicalNot LogicalOr LoopCond MatMul Max MaxPool MaxPoolGrad Maximum
Mean Merge Min Minimum Mul Neg NextIteration NoOp NotEqual OneHot Pack Pad Placeholder
PlaceholderWithDefault Pow PreventGradient Prod RandomShuffle RandomStandardNormal RandomUniform
RandomUniformInt Range Rank RealDiv Div Reciprocal RefIdentity RefSwitch RefMerge RefEnter RefExit
RefNextIteration Relu ReluGrad Relu6 Relu6Grad Elu EluGrad Selu SeluGrad Softplus SoftplusGrad Softsign
SoftsignGrad CountUpTo Reshape Round Rsqrt RsqrtGrad ScatterAdd ScatterSub ScatterUpdate Select Shape
ShapeN Sigmoid SigmoidGrad Sign Size Slice Softmax SoftmaxCrossEntropyWithLogits
SparseSoftmaxCrossEntropyWithLogits SparseToDense Split SplitV Sqrt SqrtGrad Square SquaredDifference
Squeeze StopGradient StridedSlice StridedSliceGrad Sub Sum Switch Tanh TanhGrad TensorArrayV3
TensorArrayGradV3 TensorArrayWriteV3 TensorArrayReadV3 TensorArrayGatherV3 TensorArrayScatterV3
TensorArrayConcatV3 TensorArraySplitV3 TensorArraySizeV3 TensorArrayCloseV3 Stack StackPush StackPop
StackClose StackV2 StackPushV2 StackPopV2 StackCloseV2 Tile TopKV2 Transpose TruncatedNormal Unique Unpack
UnsortedSegmentSum VariableV2 VarHandleOp ReadVariableOp AssignVariableOp AssignAddVariableOp
AssignSubVariableOp ResourceGather ResourceScatterAdd VarIsInitializedOp Where ZerosLike OnesLike FIFOQueue
RandomShuffleQueue PaddingFIFOQueue PriorityQueue FIFOQueueV2 RandomShuffleQueueV2 PaddingFIFOQueueV2
PriorityQueueV2 QueueEnqueue QueueEnqueueMany QueueDequeue QueueDequeueMany QueueDequeueUpTo QueueClose
QueueSize QueueEnqueueV2 QueueEnqueueManyV2 QueueDequeueV2 QueueDequeueManyV2 QueueDequeueUpToV2
QueueCloseV2 QueueSizeV2 _Send _Recv _Arg _Retval
ApplyAdadelta ApplyAdagradDA ApplyAdagradV2 ApplyAdaMax ApplyAdamW ApplyFtrl ApplyFtrlV2 ApplyLamb
ApplyProximalAdagrad ApplyProximalGradientDescent SparseApplyAdadelta SparseApplyAdagrad
SparseApplyAdagradDA SparseApplyAdagradV2 SparseApplyCenteredRMSProp SparseApplyFtrl SparseApplyFtrlV2
SparseApplyMomentum SparseApplyProximalAdagrad SparseApplyProximalGradientDescent SparseApplyRMSProp
ResourceApplyAdadelta ResourceApplyAdagrad ResourceApplyAdagradDA ResourceApplyAdagradV2
ResourceApplyAdaMax ResourceApplyAdam ResourceApplyAdamW ResourceApplyAdamWithAmsgrad
ResourceApplyCenteredRMSProp ResourceApplyFtrl ResourceApplyFtrlV2 ResourceApplyGradientDescent
ResourceApplyKerasMomentum ResourceApplyLamb ResourceApplyMomentum ResourceApplyProximalAdagrad
ResourceApplyProximalGradientDescent ResourceApplyRMSProp ResourceSparseApplyAdadelta
ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA ResourceSparseApplyAdagradV2
ResourceSparseApplyCenteredRMSProp ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2
ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum ResourceSparseApplyProximalAdagrad
ResourceSparseApplyProximalGradientDescent ResourceSparseApplyRMSProp
)";

TEST(RegisterOps, HasEveryPromisedOp) {
  ASSERT_TRUE(register_ops().ok()) << register_ops().to_string();
  std::istringstream names(kPromised);
  for (std::string name; names >> name;) {
    EXPECT_NE(OpRegistry::global().find(name), nullptr) << name;
  }
}

TEST(RegisterOps, EveryOpIsWhole) {
  ASSERT_TRUE(register_ops().ok());
  for (const OpDef* op : OpRegistry::global().list()) {
    EXPECT_FALSE(op->doc.empty()) << op->name;
    EXPECT_TRUE(op->shape != nullptr || op->traits.constant) << op->name << " has no shape rule";
    bool on_cpu = false;
    for (const KernelDef* kernel : KernelRegistry::global().list(op->name)) {
      on_cpu |= kernel->device == DeviceKind::kCpu || kernel->device == DeviceKind::kAny;
    }
    bool lowered = op->traits.functional != FunctionalOp::kNone;
    EXPECT_TRUE(on_cpu || lowered) << op->name << " has no CPU kernel";
    EXPECT_FALSE(op->gradient != nullptr && op->traits.cannot_differentiate)
        << op->name << " has a gradient and says that it cannot have one";
  }
}

// A kernel for every device touches no elements: what it gives out is for the host, or was given to
// it, or is copied by the device itself.
TEST(RegisterOps, NeutralKernelsMakeNothingOnTheDevice) {
  ASSERT_TRUE(register_ops().ok());
  for (const OpDef* op : OpRegistry::global().list()) {
    bool neutral = false;
    for (const KernelDef* kernel : KernelRegistry::global().list(op->name)) {
      neutral |= kernel->device == DeviceKind::kAny;
    }
    const OpTraits& traits = op->traits;
    const bool handed_on = traits.forwards || traits.placeholder;
    const bool copied = traits.constant || traits.recv || op->name == "_CopyFromHost";
    if (!neutral || handed_on || copied) continue;
    for (const ArgDef& output : op->outputs) {
      EXPECT_TRUE(output.host || output.is_ref || lives_on_host(output.dtype))
          << op->name << ", output " << output.name;
    }
  }
}

}  // namespace
}  // namespace millrace
