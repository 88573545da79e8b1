#include "millrace/ops/op_calls_testing.h"

#include <charconv>
#include <numeric>
#include <random>
#include <set>

#include "millrace/base/file_access.h"
#include "millrace/base/hash.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

using Ints = std::vector<int64_t>;

Status send_first(OpEnv& env, const TypeChoice& types);
Status keep_sparse(OpEnv& env, const TypeChoice& types);
Status stage_first(OpEnv& env, const TypeChoice& types);
Status save_new(OpEnv& env, const TypeChoice& types);
Status save_old(OpEnv& env, const TypeChoice& types);

// See parse_call().
struct Row {
  const char* op;
  const char* inputs;
  AttrMap attrs = {};
  Status (*prepare)(OpEnv&, const TypeChoice&) = nullptr;
};

const AttrMap kPool = {
    {"ksize", Ints{1, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 1}}, {"padding", "VALID"}};
const AttrMap kConv = {{"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}};
const AttrMap kDilation = {
    {"strides", Ints{1, 1, 1, 1}}, {"rates", Ints{1, 1, 1, 1}}, {"padding", "SAME"}};
const AttrMap kPool3D = {
    {"ksize", Ints{1, 2, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 2, 1}}, {"padding", "VALID"}};
const AttrMap kConv3D = {{"strides", Ints{1, 1, 1, 1, 1}}, {"padding", "SAME"}};
const AttrMap kFractional = {{"pooling_ratio", std::vector<float>{1, 1.5F, 1.5F, 1}},
                             {"deterministic", true}};
const AttrMap kSampler = {{"num_sampled", 3}, {"unique", true}, {"range_max", 10}};
const AttrMap kQueueOfVectors = {{"shapes", std::vector<PartialShape>{Shape{2}}}};
const std::vector<PartialShape> kOneScalar = {Shape{}};
const AttrMap kScalars = {{"dense_shapes", kOneScalar}};
const AttrMap kSequenceV2 = {{"context_dense_shapes", kOneScalar},
                             {"feature_list_dense_shapes", kOneScalar},
                             {"Ncontext_sparse", 1},
                             {"Nfeature_list_sparse", 1},
                             {"Nfeature_list_dense", 1}};
const std::vector<std::string> kOneKey = {"key"};
const AttrMap kSequence = {{"context_dense_shapes", kOneScalar},
                           {"feature_list_dense_shapes", kOneScalar},
                           {"Ncontext_sparse", 1},
                           {"Ncontext_dense", 1},
                           {"Nfeature_list_sparse", 1},
                           {"Nfeature_list_dense", 1},
                           {"context_sparse_keys", kOneKey},
                           {"context_dense_keys", kOneKey},
                           {"feature_list_sparse_keys", kOneKey},
                           {"feature_list_dense_keys", kOneKey},
                           {"feature_list_dense_missing_assumed_empty", kOneKey}};
const AttrMap kEdge = {{"tensor_name", "t"},
                       {"send_device", "/job:a/replica:0/task:0/device:CPU:0"},
                       {"send_device_incarnation", 1},
                       {"recv_device", "/job:a/replica:0/task:0/device:CPU:0"}};

// A group of one: what takes more members is in millrace/distributed/collective.
const AttrMap kSumAlone = {{"group_size", 1},   {"group_key", 1},   {"instance_key", 1},
                           {"merge_op", "Add"}, {"final_op", "Id"}, {"subdiv_offsets", Ints{0}}};
const AttrMap kGatherAlone = {
    {"group_size", 1}, {"group_key", 1}, {"instance_key", 1}, {"shape", PartialShape(Shape{2, 3})}};

// tanh(x + y) * x.
const AttrMap kTree = {
    {"stages", std::vector<std::string>{"AddV2:float", "Tanh:float", "Mul:float"}},
    {"arities", Ints{2, 1, 2}},
    {"operands", Ints{0, 1, 2, 3, 0}},
    {"results", Ints{2}}};

const Row kRows[] = {
    // Arithmetic.
    {"_FusedElementwise", "[2,3]|[2,3]", kTree},
    // Collective operations.
    {"CollectiveBcastRecvV2", "1 1 1 {2}"},
    {"CollectiveBcastSend", "[2,3]", kGatherAlone},
    {"CollectiveBcastSendV2", "[2,3] 1 1 1"},
    {"CollectiveEndOfData", "0"},
    {"CollectiveGather", "[2,3]", kGatherAlone},
    {"CollectiveGatherV2", "[2,3] 1 1 1 variable[1]|"},
    {"CollectiveReduce", "[2,3]", kSumAlone},
    {"CollectiveReduceV2", "[2,3] 1 1 1 variable[1]|", {{"merge_op", "Add"}, {"final_op", "Id"}}},
    // Arrays.
    {"BatchToSpace", "[4,2,2,1] [2,2]{1,0,0,1}", {{"block_size", 2}}},
    {"BatchToSpaceND", "[2,3,2] {2} [1,2]{1,2}"},
    {"BroadcastArgs", "{2,3} {3}"},
    {"BroadcastGradientArgs", "{2,3} {3}"},
    {"BroadcastTo", "[3] {2,3}"},
    {"Concat", "1 [2,3]|[2,2]"},
    {"ConcatOffset", "1 {2,3}|{2,2}"},
    {"ConcatV2", "[2,3]|[2,2] 1"},
    {"ConjugateTranspose", "[2,3] {1,0}"},
    {"DepthToSpace", "[1,2,1,4]", {{"block_size", 2}}},
    {"DiagPart", "[2,3,2,3]"},
    {"DynamicPartition", "[2,3] {1,0}", {{"num_partitions", 2}}},
    {"DynamicStitch", "{0,2}|{1,3} [2,3]|[2,3]"},
    {"ParallelDynamicStitch", "{0,2}|{1,3} [2,3]|[2,3]"},
    {"ExpandDims", "[2,3] 1"},
    {"Fill", "{2,3} []"},
    {"Gather", "[4,2] {3,0}"},
    {"GatherNd", "[4,2] [2,1]{3,0}"},
    {"GatherV2", "[4,2] {3,0} 0"},
    {"InvertPermutation", "{2,0,1}"},
    {"LinSpace", "[] [] 4"},
    {"MatrixBandPart", "[2,3,4] 1 0"},
    {"MatrixDiagPartV2", "[2,3,4] {-1,1} []"},
    {"MatrixDiagPartV3", "[2,3,4] {-1,1} []"},
    {"MatrixDiagV2", "[2,2,3] {0,1} []{-1} []{-1} []"},
    {"MatrixDiagV3", "[2,2,3] {0,1} []{-1} []{-1} []"},
    {"MatrixSetDiag", "[2,3,4] [2,3]"},
    {"MatrixSetDiagV2", "[2,3,4] [2,2,3] {0,1}"},
    {"MatrixSetDiagV3", "[2,3,4] [2,2,3] {0,1}"},
    {"MirrorPad", "[2,3] [2,2]{1,0,1,2}"},
    {"MirrorPadGrad", "[3,6] [2,2]{1,0,1,2}"},
    {"ListDiff", "[4] [2]"},
    {"OneHot", "{0,2} 3 [] []"},
    {"Pad", "[2,3] [2,2]{1,0,0,1}"},
    {"ParallelConcat", "[1,3]|[1,3]", {{"shape", Shape{2, 3}}}},
    {"PadV2", "[2,3] [2,2]{1,0,0,1} []"},
    {"Range", "1 5 1"},
    {"Reshape", "[2,3] {3,2}"},
    {"Reverse", "[2,3] {1,0}"},
    {"ReverseV2", "[2,3] {1}"},
    {"ReverseSequence", "[2,3] {2,3}", {{"seq_dim", 1}}},
    {"Roll", "[2,3] {1,-1} {0,1}"},
    {"ScatterNd", "[2,1]{3,0} [2,2] {4,2}"},
    {"ScatterNdNonAliasingAdd", "[4,2] [2,1]{3,0} [2,2]"},
    {"Slice", "[2,3] {0,1} {2,2}"},
    {"SpaceToBatch", "[1,3,3,1] [2,2]{1,0,0,1}", {{"block_size", 2}}},
    {"SpaceToBatchND", "[1,3,2] {2} [1,2]{1,2}"},
    {"SpaceToDepth", "[1,4,2,1]", {{"block_size", 2}}},
    {"SparseToDense", "{0,2} {4} [2] []"},
    {"Split", "1 [2,4]", {{"num_split", 2}}},
    {"SplitV", "[2,4] {1,3} 1", {{"num_split", 2}}},
    {"Squeeze", "[2,1,3]"},
    {"StridedSlice", "[4,3] {0,0} {4,2} {2,1}"},
    {"StridedSliceGrad", "{4,3} {0,0} {4,2} {2,1} [2,2]"},
    {"TensorScatterAdd", "[4,2] [2,1]{3,0} [2,2]"},
    {"TensorScatterSub", "[4,2] [2,1]{3,0} [2,2]"},
    {"TensorScatterUpdate", "[4,2] [2,1]{3,0} [2,2]"},
    {"Tile", "[2,3] {2,1}"},
    {"Transpose", "[2,3] {1,0}"},
    {"Unique", "[4]"},
    {"UniqueV2", "[2,3] 1"},
    {"UniqueWithCounts", "[4]"},
    {"UniqueWithCountsV2", "[2,3] {-2}"},
    {"Unpack", "[2,3]", {{"num", 2}}},
    {"Bincount", "{2,0,2} 3 [3]"},
    {"DenseBincount", "{2,0,2} 3 [3]"},
    {"DenseCountSparseOutput", "{2,0,2} [3]", {{"binary_output", false}}},
    {"NthElement", "[2,4] 1"},
    {"RaggedBincount", "{0,1,3} {1,2,0} 3 [3]"},
    {"RaggedCountSparseOutput", "{0,1,3} {1,2,0} [3]", {{"binary_output", false}}},
    {"SparseBincount", "[2,2]{0,1,1,0} {1,2} {2,3} 4 [2]"},
    {"SparseCountSparseOutput", "[2,2]{0,1,1,0} {1,2} {2,3} [2]", {{"binary_output", false}}},
    // Control flow and edges.
    {"Assert", "1 [2,3]|"},
    {"FakeParam", "", {{"shape", Shape{2, 3}}}},
    {"LoopCond", "1"},
    {"_NumericsGuard", "[2,3] [0]"},
    {"_NumericsOrigin", "[2,3] [0]|[0] [2,3]|"},
    {"OptionalGetValue",
     "optional[2,3]",
     {{"output_shapes", std::vector<PartialShape>{PartialShape({-1, -1})}}}},
    {"OptionalHasValue", "optional[2,3]"},
    {"Merge", "[2,3]|"},
    {"Print", "[2,3] [2]|", {{"first_n", 0}}},
    {"PrintV2", "[]", {{"output_stream", "file://memory://every_op/printed"}}},
    {"RefMerge", "[2,3]|"},
    {"RefSelect", "0 [2,3]|"},
    {"RefSwitch", "[2,3] 1"},
    {"Switch", "[2,3] 1"},
    {"_SwitchN", "[2,3] 1", {{"num_outs", 2}}},
    {"_HostRecv", "", kEdge, send_first},
    {"_HostSend", "[2,3]", kEdge},
    {"_Recv", "", kEdge, send_first},
    {"_Send", "[2,3]", kEdge},
    // Linear algebra and networks.
    {"AvgPool", "[1,4,4,2]", kPool},
    {"AvgPoolGrad", "{1,4,4,2} [1,2,2,2]", kPool},
    {"AvgPool3D", "[1,2,2,4,2]", kPool3D},
    {"AvgPool3DGrad", "{1,2,2,4,2} [1,1,1,2,2]", kPool3D},
    {"BatchMatMul", "[2,2,3] [2,3,2]"},
    {"BatchMatMulV2", "[2,2,3] [3,2]"},
    {"BatchMatMulV3", "[2,2,3] [3,2]"},
    {"BatchNormWithGlobalNormalization",
     "[1,2,2,2] [2] {1,.5} [2] [2]",
     {{"variance_epsilon", 0.1F}}},
    {"BatchNormWithGlobalNormalizationGrad",
     "[1,2,2,2] [2] {1,.5} [2] [1,2,2,2]",
     {{"variance_epsilon", 0.1F}}},
    {"BatchCholesky", "[2,2]{2,1,1,3}"},
    {"BatchCholeskyGrad", "[2,2]{2,0,1,3} [2,2]"},
    {"BatchMatrixBandPart", "[2,3,4] 1 0"},
    {"BatchMatrixDeterminant", "[2,2]{2,1,1,3}"},
    {"BatchMatrixInverse", "[2,2]{2,1,1,3}"},
    {"BatchMatrixSetDiag", "[2,3,4] [2,3]"},
    {"BatchMatrixSolve", "[2,2]{2,1,1,3} [2,3]"},
    {"BatchMatrixSolveLs", "[3,2]{2,1,1,3,0,1} [3,2] .5"},
    {"BatchMatrixTriangularSolve", "[2,2]{2,0,1,3} [2,3]"},
    {"BatchSelfAdjointEig", "[2,2]{2,1,1,3}"},
    {"BatchSelfAdjointEigV2", "[2,2]{2,1,1,3}"},
    {"BatchSvd", "[2,2]{2,1,1,3}"},
    {"_SumOfMatMul", "[2,2]| [2,3]|[2,1] [3,2]|[1,2]"},
    {"BiasAdd", "[2,3] [3]"},
    {"BiasAddV1", "[2,3] [3]"},
    {"Cholesky", "[2,2]{2,1,1,3}"},
    {"CholeskyGrad", "[2,2]{2,0,1,3} [2,2]"},
    {"Conv2D", "[1,4,4,2] [2,2,2,3]", kConv},
    {"_CloseConv2D", "[1,4,4,2] [2,2,2,3]", kConv},
    {"_CloseConv2DBackpropFilter", "[1,4,4,2] {2,2,2,3} [1,4,4,3]", kConv},
    {"_CloseConv2DBackpropInput", "{1,4,4,2} [2,2,2,3] [1,4,4,3]", kConv},
    {"QuantizedConv2D", "[1,4,4,2] [2,2,2,3] [] [] [] []", kConv},
    {"Conv2DBackpropFilter", "[1,4,4,2] {2,2,2,3} [1,4,4,3]", kConv},
    {"Conv2DBackpropInput", "{1,4,4,2} [2,2,2,3] [1,4,4,3]", kConv},
    {"Conv3D", "[1,3,4,4,2] [2,2,2,2,3]", kConv3D},
    {"Conv3DBackpropFilterV2", "[1,3,4,4,2] {2,2,2,2,3} [1,3,4,4,3]", kConv3D},
    {"Conv3DBackpropInputV2", "{1,3,4,4,2} [2,2,2,2,3] [1,3,4,4,3]", kConv3D},
    {"DepthwiseConv2dNative", "[1,4,4,2] [2,2,2,2]", kConv},
    {"DepthwiseConv2dNativeBackpropFilter", "[1,4,4,2] {2,2,2,2} [1,4,4,4]", kConv},
    {"DepthwiseConv2dNativeBackpropInput", "{1,4,4,2} [2,2,2,2] [1,4,4,4]", kConv},
    {"Dilation2D", "[1,4,4,2] [2,2,2]", kDilation},
    {"Dilation2DBackpropFilter", "[1,4,4,2] [2,2,2] [1,4,4,2]", kDilation},
    {"Dilation2DBackpropInput", "[1,4,4,2] [2,2,2] [1,4,4,2]", kDilation},
    {"FractionalAvgPool", "[1,4,4,2]", kFractional},
    {"FractionalAvgPoolGrad", "{1,4,4,2} [1,2,2,2] {0,2,4} {0,2,4}"},
    {"FractionalMaxPool", "[1,4,4,2]", kFractional},
    {"FractionalMaxPoolGrad", "[1,4,4,2] [1,2,2,2] [1,2,2,2] {0,2,4} {0,2,4}"},
    {"FusedBatchNorm", "[2,2,3,2] [2] [2] [2] {1,.5}"},
    {"FusedBatchNormGrad", "[2,2,3,2] [2,2,3,2] [2] [2] {1,.5}"},
    {"FusedBatchNormGradV2", "[2,2,3,2] [2,2,3,2] [2] [2] {1,.5}"},
    {"FusedBatchNormGradV3", "[2,2,3,2] [2,2,3,2] [2] [2] {1,.5} []"},
    {"FusedBatchNormV2", "[2,2,3,2] [2] [2] [2] {1,.5}"},
    {"FusedBatchNormV3", "[2,2,3,2] [2] [2] [2] {1,.5}"},
    {"Cross", "[2,3] [2,3]"},
    {"BlockLSTM", "2 [3,2,3] [2,2] [2,2] [5,8] [2] [2] [2] [8]"},
    {"BlockLSTMGrad",
     "2 [3,2,3] [2,2] [2,2] [5,8] [2] [2] [2] [8] [3,2,2] [3,2,2] [3,2,2] [3,2,2] [3,2,2] [3,2,2] "
     "[3,2,2] [3,2,2] [3,2,2]",
     {{"use_peephole", true}}},
    {"BlockLSTMGradV2",
     "2 [3,2,3] [2,2] [2,2] [5,8] [2] [2] [2] [8] [3,2,2] [3,2,2] [3,2,2] [3,2,2] [3,2,2] [3,2,2] "
     "[3,2,2] [3,2,2] [3,2,2]",
     {{"use_peephole", false}}},
    {"BlockLSTMV2", "2 [3,2,3] [2,2] [2,2] [5,8] [2] [2] [2] [8]", {{"use_peephole", true}}},
    {"GRUBlockCell", "[2,3] [2,2] [5,4] [5,2] [4] [2]"},
    {"GRUBlockCellGrad", "[2,3] [2,2] [5,4] [5,2] [4] [2] [2,2] [2,2] [2,2] [2,2]"},
    {"LSTMBlockCell", "[2,3] [2,2] [2,2] [5,8] [2] [2] [2] [8]", {{"use_peephole", true}}},
    {"LSTMBlockCellGrad",
     "[2,3] [2,2] [2,2] [5,8] [2] [2] [2] [8] [2,2] [2,2] [2,2] [2,2] [2,2] [2,2] [2,2] [2,2]",
     {{"use_peephole", true}}},
    {"Eig", "[2,2]{2,1,1,3}"},
    {"InTopK", "[2,3] {1,0}", {{"k", 2}}},
    {"InTopKV2", "[2,3] {1,0} 2"},
    {"LRN", "[1,2,2,4]"},
    {"LRNGrad", "[1,2,2,4] [1,2,2,4] [1,2,2,4]"},
    {"LogMatrixDeterminant", "[2,2]{2,1,1,3}"},
    {"MatMul", "[2,3] [3,2]"},
    {"MatrixDeterminant", "[2,2]{2,1,1,3}"},
    {"MatrixInverse", "[2,2]{2,1,1,3}"},
    {"MatrixLogarithm", "[2,2]{2,1,1,3}"},
    {"MatrixSolve", "[2,2]{2,1,1,3} [2,3]"},
    {"MatrixSolveLs", "[3,2]{2,1,1,3,0,1} [3,2] .5"},
    {"MatrixSquareRoot", "[2,2]{2,1,1,3}"},
    {"MatrixTriangularSolve", "[2,2]{2,0,1,3} [2,3]"},
    {"MaxPool", "[1,4,4,2]", kPool},
    {"MaxPool3D", "[1,2,2,4,2]", kPool3D},
    {"MaxPool3DGrad", "[1,2,2,4,2] [1,1,1,2,2] [1,1,1,2,2]", kPool3D},
    {"MaxPool3DGradGrad", "[1,2,2,4,2] [1,1,1,2,2] [1,2,2,4,2]", kPool3D},
    {"MaxPoolGrad", "[1,4,4,2] [1,2,2,2] [1,2,2,2]", kPool},
    {"MaxPoolGradGrad", "[1,4,4,2] [1,2,2,2] [1,4,4,2]", kPool},
    {"MaxPoolGradGradWithArgmax", "[1,4,4,1] [1,4,4,1] [1,2,2,1]{1,3,8,15}", kPool},
    {"MaxPoolGradWithArgmax", "[1,4,4,1] [1,2,2,1] [1,2,2,1]{1,3,8,15}", kPool},
    {"MaxPoolWithArgmax", "[1,4,4,2]", kPool},
    {"SelfAdjointEig", "[2,2]{2,1,1,3}"},
    {"SelfAdjointEigV2", "[2,2]{2,1,1,3}"},
    {"SparseSoftmaxCrossEntropyWithLogits", "[2,3] {1,0}"},
    {"Svd", "[2,2]{2,1,1,3}"},
    {"TopKV2", "[2,3] 2"},
    {"TridiagonalMatMul", "[1,3] [1,3] [1,3] [3,2]"},
    {"TridiagonalSolve", "[3,2]{1,0,3,4,0,1} [2,3]"},
    {"BatchFFT3D", "[1,2,3]"},
    {"BatchIFFT3D", "[1,2,3]"},
    {"FFT3D", "[1,2,3]"},
    {"IFFT3D", "[1,2,3]"},
    {"IRFFT", "[2,3] {4}"},
    {"IRFFT2D", "[2,2,3] {2,5}"},
    {"IRFFT3D", "[2,2,3] {2,2,4}"},
    {"RFFT", "[2,5] {4}"},
    {"RFFT2D", "[2,2,3] {2,3}"},
    {"RFFT3D", "[2,2,4] {2,2,4}"},
    // Images.
    {"AdjustContrastv2", "[2,3,2,3] 1.5"},
    {"AdjustHue", "[2,3,2,3] .25"},
    {"AdjustSaturation", "[2,3,2,3] .5"},
    {"CropAndResize", "[1,4,4,2] [2,4]{.1,.2,.8,.7,0,.3,.9,1} {0,0} {2,3}"},
    {"CropAndResizeGradBoxes", "[2,2,3,2] [1,4,4,2] [2,4]{.1,.2,.8,.7,0,.3,.9,1} {0,0}"},
    {"CropAndResizeGradImage", "[2,2,3,2] [2,4]{.1,.2,.8,.7,0,.3,.9,1} {0,0} {1,4,4,2}"},
    {"DrawBoundingBoxes", "[1,4,4,3] [1,1,4]{.1,.2,.8,.7}"},
    {"DrawBoundingBoxesV2", "[1,4,4,3] [1,1,4]{.1,.2,.8,.7} [1,3]"},
    {"EncodeJpeg", "[4,5,3]"},
    {"EncodeJpegVariableQuality", "[4,5,3] 50"},
    {"EncodePng", "[4,5,3]"},
    {"ExtractGlimpse", "[1,4,4,2] {2,2} [1,2]"},
    {"ExtractImagePatches",
     "[1,4,4,2]",
     {{"ksizes", Ints{1, 2, 2, 1}},
      {"strides", Ints{1, 1, 1, 1}},
      {"rates", Ints{1, 1, 1, 1}},
      {"padding", "SAME"}}},
    {"ExtractVolumePatches",
     "[1,2,4,4,2]",
     {{"ksizes", Ints{1, 2, 2, 2, 1}}, {"strides", Ints{1, 1, 1, 1, 1}}, {"padding", "SAME"}}},
    {"HSVToRGB", "[2,3]"},
    {"NonMaxSuppression", "[2,4] [2] 2"},
    {"NonMaxSuppressionV2", "[2,4] [2] 2 .5"},
    {"NonMaxSuppressionV3", "[2,4] [2] 2 .5 .125"},
    {"NonMaxSuppressionV4", "[2,4] [2] 2 .5 .125"},
    {"RGBToHSV", "[2,3]"},
    {"ResizeArea", "[1,3,4,2] {2,5}"},
    {"ResizeAreaGrad", "[1,2,5,2] [1,3,4,2]"},
    {"ResizeBicubic", "[1,3,4,2] {2,5}"},
    {"ResizeBicubicGrad", "[1,2,5,2] [1,3,4,2]"},
    {"ResizeBilinear", "[1,3,4,2] {2,5}"},
    {"ResizeBilinearGrad", "[1,2,5,2] [1,3,4,2]"},
    {"ResizeNearestNeighbor", "[1,3,4,2] {2,5}"},
    {"ResizeNearestNeighborGrad", "[1,2,5,2] {3,4}"},
    {"SampleDistortedBoundingBox", "{9,8,3} [1,1,4]{.25,.25,.5,.5}"},
    {"SampleDistortedBoundingBoxV2", "{9,8,3} [1,1,4]{.25,.25,.5,.5} .125"},
    // Random numbers.
    {"StatelessMultinomial", "[2,3] 2 {1,2}"},
    {"StatelessRandomGammaV2", "{3,2} {1,2} [2]"},
    {"StatelessRandomGammaV3", "{3,2} {1} {0,5} 1 [2]"},
    {"StatelessRandomGetKeyCounter", "{1,2}"},
    {"StatelessRandomGetKeyCounterAlg", "{1,2}"},
    {"StatelessRandomNormal", "{2,3} {1,2}"},
    {"StatelessRandomNormalV2", "{2,3} {1} {0,5} 1"},
    {"StatelessRandomPoisson", "{3,2} {1,2} [2]"},
    {"StatelessRandomUniform", "{2,3} {1,2}"},
    {"StatelessRandomUniformFullInt", "{2,3} {1,2}"},
    {"StatelessRandomUniformFullIntV2", "{2,3} {1} {0,5} 1"},
    {"StatelessRandomUniformInt", "{2,3} {1,2} 0 9"},
    {"StatelessRandomUniformIntV2", "{2,3} {1} {0,5} 1 0 9"},
    {"StatelessRandomUniformV2", "{2,3} {1} {0,5} 1"},
    {"StatelessTruncatedNormal", "{2,3} {1,2}"},
    {"StatelessTruncatedNormalV2", "{2,3} {1} {0,5} 1"},
    {"AllCandidateSampler", "[2,1]{1,2}", {{"num_sampled", 3}, {"unique", true}}},
    {"ComputeAccidentalHits", "[2,1]{1,2} {2,5}", {{"num_true", 1}}},
    {"FixedUnigramCandidateSampler",
     "[2,1]{1,2}",
     {{"num_sampled", 2},
      {"unique", true},
      {"range_max", 3},
      {"unigrams", std::vector<float>{1, 2, 3}}}},
    {"LearnedUnigramCandidateSampler", "[2,1]{1,2}", kSampler},
    {"LogUniformCandidateSampler", "[2,1]{1,2}", kSampler},
    {"Multinomial", "[2,3] 4"},
    {"ParameterizedTruncatedNormal", "{2,3} [2] [2]{1,2} [2]{-1,2} 3"},
    {"RandomGamma", "{2} [3]"},
    {"RandomPoisson", "{2} [3]"},
    {"RandomPoissonV2", "{2} [3]"},
    {"RandomStandardNormal", "{2,3}"},
    {"RandomUniform", "{2,3}"},
    {"RandomUniformInt", "{2,3} 1 9"},
    {"ThreadUnsafeUnigramCandidateSampler", "[2,1]{1,2}", kSampler},
    {"TruncatedNormal", "{2,3}"},
    {"UniformCandidateSampler", "[2,1]{1,2}", kSampler},
    // Reductions.
    {"All", "[2,3] {1}"},
    {"Any", "[2,3] {1}"},
    {"ArgMax", "[2,3] 1"},
    {"ArgMin", "[2,3] 1"},
    {"Cumprod", "[2,3] 1"},
    {"Cumsum", "[2,3] 1"},
    {"LinearRecurrence", "[2,3] [2,3] 1"},
    {"Max", "[2,3] {1}"},
    {"Mean", "[2,3] {1}"},
    {"Min", "[2,3] {1}"},
    {"Prod", "[2,3] {1}"},
    {"SegmentMax", "[3,2] {0,0,1}"},
    {"SegmentMean", "[3,2] {0,0,1}"},
    {"SegmentMin", "[3,2] {0,0,1}"},
    {"SegmentProd", "[3,2] {0,0,1}"},
    {"SegmentSum", "[3,2] {0,0,1}"},
    {"DenseToDenseSetOperation", "[2,3] [2,2]", {{"set_operation", "union"}}},
    {"DenseToSparseSetOperation",
     "[2,3] [2,2]{0,0,1,1} [2] {2,2}",
     {{"set_operation", "intersection"}}},
    {"EditDistance", "[2,2]{0,0,1,1} [2] {2,2} [2,2]{0,0,0,1} [2] {2,2}"},
    {"SerializeManySparse", "[2,2]{0,0,1,1} [2] {2,2}"},
    {"DeserializeManySparse", "sparse"},
    {"DeserializeSparse", "sparse"},
    {"SerializeSparse", "[2,2]{0,0,1,1} [2] {2,2}"},
    {"OptionsDataset", "dataset", {{"serialized_options", ""}}},
    {"RaggedTensorToVariant", "{0,1,3}|{0,2,2,3} [3,2]", {{"batched_input", true}}},
    {"RaggedTensorFromVariant",
     "ragged[3,2]",
     {{"input_ragged_rank", 1}, {"output_ragged_rank", 1}}},
    {"SetSize", "[2,2]{0,0,1,1} [2] {2,2}"},
    {"SparseAdd", "[2,2]{0,0,1,1} [2] {2,2} [2,2]{0,0,0,1} [2] {2,2} 0"},
    {"SparseAddGrad", "[3] [2,2]{0,0,1,1} [2,2]{0,0,0,1} [3,2]{0,0,0,1,1,1}"},
    {"SparseConcat", "[2,2]{1,0,0,1}|[1,2]{0,0} [2]|[1] {2,2}|{3,2}", {{"concat_dim", 0}}},
    {"SparseDenseCwiseAdd", "[2,2]{0,1,1,2} [2] {2,3} [2,3]"},
    {"SparseDenseCwiseDiv", "[2,2]{0,1,1,2} [2] {2,3} [3]"},
    {"SparseDenseCwiseMul", "[2,2]{0,1,1,2} [2] {2,3} [2,1]"},
    {"SparseFillEmptyRows", "[2,2]{2,1,0,1} [2] {4,3} []"},
    {"SparseFillEmptyRowsGrad", "{2,0} [4]"},
    {"SparseReorder", "[3,2]{1,0,0,1,0,2} [3] {2,3}"},
    {"SparseReshape", "[2,2]{0,0,1,2} {2,3} {3,-1}"},
    {"SparseTensorDenseAdd", "[2,2]{0,1,1,2} [2] {2,3} [2,3]"},
    {"SparseTensorDenseMatMul", "[2,2]{0,1,1,2} [2] {2,3} [3,2]"},
    {"SparseToSparseSetOperation",
     "[2,2]{0,0,1,1} [2] {2,2} [2,2]{0,0,0,1} [2] {2,2}",
     {{"set_operation", "a-b"}}},
    {"SparseSegmentMean", "[4,2] {3,0,3} {0,0,1}"},
    {"SparseSegmentMeanGrad", "[2,2] {3,0,3} {0,0,1} 4"},
    {"SparseSegmentMeanWithNumSegments", "[4,2] {3,0,3} {0,0,2} 4"},
    {"SparseSegmentSqrtN", "[4,2] {3,0,3} {0,0,1}"},
    {"SparseSegmentSqrtNGrad", "[2,2] {3,0,3} {0,0,1} 4"},
    {"SparseSegmentSqrtNWithNumSegments", "[4,2] {3,0,3} {0,0,2} 4"},
    {"SparseSegmentSum", "[4,2] {3,0,3} {0,0,1}"},
    {"SparseSegmentSumGrad", "[2,2] {3,0,3} {0,0,1} 4"},
    {"SparseSegmentSumWithNumSegments", "[4,2] {3,0,3} {0,0,2} 4"},
    {"Sum", "[2,3] {1}"},
    {"UnsortedSegmentMax", "[3,2] {1,0,1} 2"},
    {"UnsortedSegmentMin", "[3,2] {1,0,1} 2"},
    {"UnsortedSegmentProd", "[3,2] {1,0,1} 3"},
    {"UnsortedSegmentSum", "[3,2] {1,0,1} 3"},
    {"Einsum", "[2,3]|[3,2]", {{"equation", "ij,jk->ik"}}},
    // Files and messages.
    {"DecodeCSV", "[0] [1]|[0]"},
    {"DecodeJSONExample", "[0]"},
    {"MatchingFiles", "[0]"},
    {"ParseExample", "[0] [0] []| []| []|", kScalars},
    {"ParseExampleV2", "[0] [0] [1] [1] [1] []|", kScalars},
    {"ParseSequenceExample", "[0] [0] []|", kSequence},
    {"ParseSequenceExampleV2", "[0] [0] [1] [1] [1] [1] [1] [1] {1} []|", kSequenceV2},
    // Strings.
    {"DecodeBase64", "[0]"},
    {"Dequantize", "[2,3] [] []"},
    {"DecodePaddedRaw", "[0] 8"},
    {"DecodeRaw", "[0]"},
    {"ReduceJoin", "[2,3] {1}"},
    {"RegexFullMatch", "[2,3] []"},
    {"RegexReplace", "[2,3] [] []"},
    {"StaticRegexFullMatch", "[2,3]", {{"pattern", "(a|b)*c?"}}},
    {"StaticRegexReplace", "[2,3]", {{"pattern", "(a|b)*c?"}, {"rewrite", "x"}}},
    {"StringJoin", "[2,3]|[]|[2,3]"},
    {"StringSplit", "[3] []"},
    {"StringSplitV2", "[3] []"},
    {"StringToHashBucketStrong", "[2,3]", {{"key", Ints{1, 2}}}},
    {"StringToNumber", "[0]"},
    {"UnicodeDecode", "[2]", {{"input_encoding", "UTF-8"}}},
    {"UnicodeDecodeWithOffsets", "[2]", {{"input_encoding", "UTF-8"}}},
    {"UnicodeEncode", "{72,105,33} {0,2,3}", {{"output_encoding", "UTF-8"}}},
    {"UnicodeTranscode", "[2]", {{"input_encoding", "UTF-8"}, {"output_encoding", "UTF-16-BE"}}},
    {"Substr", "[2,3] []{0} []{2}"},
    // Summaries.
    {"AudioSummary", "[] [2,5,1]", {{"sample_rate", 8.0F}}},
    {"AudioSummaryV2", "[] [2,5,1] 8"},
    {"HistogramSummary", "[] [2,3]"},
    {"ImageSummary", "[] [2,3,4,3]"},
    {"MergeSummary", "[0]|[0]"},
    {"ScalarSummary", "[2] [2]"},
    {"TensorSummary", "[2,3]"},
    // Variables.
    {"CountUpTo", "1", {{"limit", 5}}},
    {"DestroyTemporaryVariable", "temporary[2,3]", {{"var_name", "temporary"}}},
    {"ResourceCountUpTo", "variable[]", {{"limit", 1000000}}},
    {"ResourceGather", "variable[4,2] {3,0}"},
    {"ResourceScatterAdd", "variable[4,2] {3,0} [2,2]"},
    {"ResourceScatterDiv", "variable[4,2] {3,0} [2,2]"},
    {"ResourceScatterMax", "variable[4,2] {3,0} [2,2]"},
    {"ResourceScatterMin", "variable[4,2] {3,0} [2,2]"},
    {"ResourceScatterMul", "variable[4,2] {3,0} [2,2]"},
    {"ResourceScatterNdAdd", "variable[4,2] [2,1]{3,0} [2,2]"},
    {"ResourceScatterNdMax", "variable[4,2] [2,1]{3,0} [2,2]"},
    {"ResourceScatterNdMin", "variable[4,2] [2,1]{3,0} [2,2]"},
    {"ResourceScatterNdSub", "variable[4,2] [2,1]{3,0} [2,2]"},
    {"ResourceScatterNdUpdate", "variable[4,2] [2,1]{3,0} [2,2]"},
    {"ResourceScatterSub", "variable[4,2] {3,0} [2,2]"},
    {"ResourceScatterUpdate", "variable[4,2] {3,0} [2,2]"},
    {"ResourceStridedSliceAssign", "variable[4,3] {0,0} {4,2} {2,1} [2,2]"},
    {"ScatterAdd", "[4,2] {3,0} [2,2]"},
    {"ScatterDiv", "[4,2] {3,0} [2,2]"},
    {"ScatterMax", "[4,2] {3,0} [2,2]"},
    {"ScatterMin", "[4,2] {3,0} [2,2]"},
    {"ScatterMul", "[4,2] {3,0} [2,2]"},
    {"ScatterNdAdd", "[4,2] [2,1]{3,0} [2,2]"},
    {"ScatterNdDiv", "[4,2] [2,1]{3,0} [2,2]"},
    {"ScatterNdMax", "[4,2] [2,1]{3,0} [2,2]"},
    {"ScatterNdMin", "[4,2] [2,1]{3,0} [2,2]"},
    {"ScatterNdMul", "[4,2] [2,1]{3,0} [2,2]"},
    {"ScatterNdSub", "[4,2] [2,1]{3,0} [2,2]"},
    {"ScatterNdUpdate", "[4,2] [2,1]{3,0} [2,2]"},
    {"ScatterSub", "[4,2] {3,0} [2,2]"},
    {"ScatterUpdate", "[4,2] {3,0} [2,2]"},
    {"StridedSliceAssign", "[4,3] {0,0} {4,2} {2,1} [2,2]"},
    {"TemporaryVariable", "", {{"shape", Shape{2, 3}}}},
    {"Variable", "", {{"shape", Shape{2, 3}}}},
    {"VariableV2", "", {{"shape", Shape{2, 3}}}},
    // Queues.
    {"Barrier", "", kQueueOfVectors},
    {"BarrierClose", "barrier[2]"},
    {"BarrierIncompleteSize", "barrier[2]"},
    {"BarrierInsertMany", "barrier[2] [2] [2,2]", {{"component_index", 0}}},
    {"BarrierReadySize", "barrier[2]"},
    {"BarrierTakeMany", "barrier[2] 1"},
    {"PaddingFIFOQueue", "", kQueueOfVectors},
    {"PaddingFIFOQueueV2", "", kQueueOfVectors},
    {"PriorityQueue", "", kQueueOfVectors},
    {"PriorityQueueV2", "", kQueueOfVectors},
    {"QueueClose", "queue[2]"},
    {"QueueCloseV2", "queue[2]"},
    {"QueueDequeue", "queue[2]"},
    {"QueueDequeueMany", "queue[2] 2"},
    {"QueueDequeueManyV2", "queue[2] 2"},
    {"QueueDequeueUpTo", "queue[2] 2"},
    {"QueueDequeueUpToV2", "queue[2] 2"},
    {"QueueDequeueV2", "queue[2]"},
    {"QueueEnqueue", "queue[2] [2]|"},
    {"QueueEnqueueMany", "queue[2] [3,2]|"},
    {"QueueEnqueueManyV2", "queue[2] [3,2]|"},
    {"QueueEnqueueV2", "queue[2] [2]|"},
    {"QueueSize", "queue[2]"},
    {"QueueSizeV2", "queue[2]"},
    {"DeleteSessionTensor", "kept[2]"},
    {"GetSessionTensor", "kept[2]"},
    {"Stage", "[2,3]|"},
    {"Unstage", "", {{"shared_name", "area"}}, stage_first},
    // Accumulators of gradients.
    {"AccumulatorApplyGradient", "accumulator[2,3] 0 [2,3]"},
    {"AccumulatorBegin", "accumulator[2,3] 5 1"},
    {"AccumulatorNumAccumulated", "accumulator[2,3]"},
    {"AccumulatorSetGlobalStep", "accumulator[2,3] 1"},
    {"AccumulatorTakeGradient", "accumulator[2,3] 1"},
    {"ResourceAccumulatorApplyGradient", "accumulator[2,3] 0 [2,3]"},
    {"ResourceAccumulatorBegin", "accumulator[2,3] 5 1"},
    {"ResourceAccumulatorGiveGradient", "accumulator[2,3] 0 0 'a' [2,3]"},
    {"ResourceAccumulatorNumAccumulated", "accumulator[2,3]"},
    {"ResourceAccumulatorSetGlobalStep", "accumulator[2,3] 1"},
    {"ResourceAccumulatorTakeGradient", "accumulator[2,3] 1"},
    {"ResourceAccumulatorTakeStep", "accumulator[2,3] 0 0 1"},
    {"SparseAccumulatorApplyGradient", "rows_accumulator[2,3] 0 {2,0} [2,3] {3,3}"},
    {"SparseAccumulatorGiveGradient", "rows_accumulator[2,3] 0 0 'a' {2,0} [2,3] {3,3}"},
    {"SparseAccumulatorTakeGradient", "rows_accumulator[2,3] 1"},
    {"SparseAccumulatorTakeStep", "rows_accumulator[2,3] 0 0 1"},
    {"StepGateAdmit", "gate 5 2"},
    {"StepGateClose", "gate 'why'"},
    {"StepGateLeave", "gate 3 2"},
    {"StepGateOpen", "gate 8"},
    {"StepGatePace", "gate 'one' 1"},
    {"StepGateReset", "gate 0 5"},
    {"StepGateWait", "gate 0 5"},
    {"AddManySparseToTensorsMap", "[2,2]{0,1,1,0} [2] {2,4}"},
    {"AddSparseToTensorsMap", "[2,1]{0,2} [2] {4}"},
    {"TakeManySparseFromTensorsMap", "{0}", {{"shared_name", "map"}}, keep_sparse},
    // Stacks, TensorArrays and tensor lists.
    {"EmptyTensorList", "{2} 5"},
    {"StackClose", "stack[2]"},
    {"StackCloseV2", "stack[2]"},
    {"StackPop", "stack[2]"},
    {"StackPopV2", "stack[2]"},
    {"StackPush", "stack[2] [2]"},
    {"StackPushV2", "stack[2] [2]"},
    {"StackV2", "5"},
    {"TensorArrayCloseV3", "array[2]"},
    {"TensorArrayConcatV3", "full_array[2] 0"},
    {"TensorArrayGatherV3", "full_array[2] {1,0} 0"},
    {"TensorArrayGradV3", "array[2] 0", {{"source", "gradients"}}},
    {"TensorArrayReadV3", "full_array[2] 1 0"},
    {"TensorArrayScatterV3", "array[2] {1,0} [2,3] 0"},
    {"TensorArraySizeV3", "array[2] 0"},
    {"TensorArraySplitV3", "array[2] [3,2] {1,2} 0"},
    {"TensorArrayV3", "3"},
    {"TensorArrayWriteV3", "array[2] 1 [2] 0"},
    {"TensorListConcat", "list[2]"},
    {"TensorListConcatLists", "list[2] list[2]"},
    {"TensorListConcatV2", "list[2] {2} [0]"},
    {"TensorListElementShape", "list[2]"},
    {"TensorListFromTensor", "[2,3] {3}"},
    {"TensorListGather", "list[2] {1,0} {2}"},
    {"TensorListGetItem", "list[2] 1 {2}"},
    {"TensorListLength", "list[2]"},
    {"TensorListPopBack", "list[2] {2}"},
    {"TensorListPushBack", "list[2] [2]"},
    {"TensorListPushBackBatch", "lists[2] [1,2]"},
    {"TensorListReserve", "{2} 3"},
    {"TensorListResize", "list[2] 3"},
    {"TensorListScatter", "[2,3] {1,0} {3}"},
    {"TensorListScatterIntoExistingList", "list[2] [2,2] {1,0}"},
    {"TensorListScatterV2", "[2,3] {1,0} {3} 4"},
    {"TensorListSetItem", "list[2] 1 [2]"},
    {"TensorListSplit", "[3,2] {-1,2} {1,2}"},
    {"TensorListStack", "list[2] {2}"},

    {"InitializeTable", "new_table [2] [2]"},
    {"InitializeTableFromTextFile", "new_table file", {{"key_index", -2}, {"value_index", -1}}},
    {"InitializeTableFromTextFileV2", "new_table file", {{"key_index", -2}, {"value_index", -1}}},
    {"InitializeTableV2", "new_table [2] [2]"},
    {"LookupTableExport", "table"},
    {"LookupTableExportV2", "table"},
    {"LookupTableFind", "table [2] []"},
    {"LookupTableFindV2", "table [2] []"},
    {"LookupTableImport", "table [2] [2]"},
    {"LookupTableImportV2", "table [2] [2]"},
    {"LookupTableInsert", "table [2] [2]"},
    {"LookupTableInsertV2", "table [2] [2]"},
    {"LookupTableRemoveV2", "table [2]"},
    {"LookupTableSize", "table"},
    {"LookupTableSizeV2", "table"},

    {"MatchingFiles", "'memory://every_op/*'"},
    {"MergeV2Checkpoints", "[1]'memory://every_op/new' 'memory://every_op/merged'", {}, save_new},
    {"ReadFile", "file"},
    {"ReaderNumRecordsProduced", "reader"},
    {"ReaderNumRecordsProducedV2", "reader"},
    {"ReaderNumWorkUnitsCompleted", "reader"},
    {"ReaderNumWorkUnitsCompletedV2", "reader"},
    {"ReaderRead", "reader names"},
    {"ReaderReadUpTo", "reader names 1"},
    {"ReaderReadUpToV2", "reader names 1"},
    {"ReaderReadV2", "reader names"},
    {"ReaderReset", "reader"},
    {"ReaderResetV2", "reader"},
    {"ReaderRestoreState", "reader reader_state"},
    {"ReaderRestoreStateV2", "reader reader_state"},
    {"ReaderSerializeState", "reader"},
    {"ReaderSerializeStateV2", "reader"},
    {"Restore", "'memory://every_op/old' 'name'", {}, save_old},
    {"RestoreSlice", "'memory://every_op/old' 'name' ''", {}, save_old},
    {"RestoreV2", "'memory://every_op/new' [1]'name' [1]''", {}, save_new},
    {"Save", "'memory://every_op/old' [1]'name' [2,3]|"},
    {"SaveSlices", "'memory://every_op/old' [1]'name' [1]'' [2,3]|"},
    {"SaveV2", "'memory://every_op/new' [1]'name' [1]'' [2,3]|"},
    {"SaveV2Wait", "''"},
    {"WriteFile", "'memory://every_op/written' []"},

    {"DatasetToSingleElement", "dataset[2,3]"},
    {"AnonymousRandomSeedGenerator", "1 2"},
    {"AnonymousSeedGenerator", "1 2 1"},
    {"DatasetToTFRecord", "dataset[] 'memory://every_op/records' ''"},
    {"DeleteIterator", "iterator[2] []"},
    {"DenseToSparseBatchDataset", "dataset[2] 1 {-1}"},
    {"DeserializeIterator", "iterator[2] iterator_state[2]"},
    {"FixedLengthRecordDataset", "[1] 0 1 0 0"},
    {"FixedLengthRecordDatasetV2", "[1] 0 1 0 0 ''"},
    {"ExperimentalDatasetToTFRecord", "dataset[] 'memory://every_op/records' ''"},
    {"ExperimentalDenseToSparseBatchDataset", "dataset[2] 1 {-1}"},
    {"ExperimentalIteratorGetDevice", "iterator[2]"},
    {"ExperimentalUniqueDataset", "dataset[]"},
    {"IteratorFromStringHandle", "iterator_name[2]"},
    {"IteratorFromStringHandleV2", "iterator_name[2]"},
    {"IteratorGetNext", "iterator[2,3]"},
    {"IteratorGetNextAsOptional", "iterator[2,3]"},
    {"IteratorGetNextSync", "iterator[2,3]"},
    {"IteratorGetDevice", "iterator[2]"},
    {"IteratorReport", "iterator[2]"},
    {"IteratorToStringHandle", "iterator[2]"},
    {"MakeIterator", "dataset[2] iterator[2]"},
    {"PaddedBatchDataset", "dataset[2] 1 {-1}| []|"},
    {"PaddedBatchDatasetV2", "dataset[2] 1 {-1}| []| 1"},
    {"SerializeIterator", "iterator[2]"},
    {"RebatchDatasetV2", "dataset[2] {1,2} 1"},
    {"ShardDataset", "dataset[2] 2 1"},
    {"ShuffleDatasetV2", "dataset[2] 1 seed_generator"},
    {"SparseTensorSliceDataset", "[2,2]{0,1,1,0} [2] {2,2}"},
    {"TFRecordDataset", "[1] '' 0"},
    {"TFRecordDatasetV2", "[1] '' 0 {0}"},
    {"TextLineDataset", "[1] '' 0"},
    {"UnwrapDatasetVariant", "dataset[2]"},
    {"WrapDatasetVariant", "dataset[2]"},
};

constexpr std::pair<std::string_view, Operand::Kind> kKinds[] = {
    {"variable", Operand::Kind::kVariable},
    {"temporary", Operand::Kind::kTemporary},
    {"queue", Operand::Kind::kQueue},
    {"barrier", Operand::Kind::kBarrier},
    {"kept", Operand::Kind::kKept},
    {"stack", Operand::Kind::kStack},
    {"accumulator", Operand::Kind::kAccumulator},
    {"rows_accumulator", Operand::Kind::kRowsAccumulator},
    {"gate", Operand::Kind::kGate},
    {"array", Operand::Kind::kArray},
    {"full_array", Operand::Kind::kFullArray},
    {"list", Operand::Kind::kList},
    {"lists", Operand::Kind::kLists},
    {"optional", Operand::Kind::kOptional},
    {"dataset", Operand::Kind::kDataset},
    {"iterator", Operand::Kind::kIterator},
    {"iterator_name", Operand::Kind::kIteratorName},
    {"iterator_state", Operand::Kind::kIteratorState},
    {"seed_generator", Operand::Kind::kSeedGenerator},
    {"sparse", Operand::Kind::kSparse},
    {"ragged", Operand::Kind::kRagged},
    {"reader", Operand::Kind::kReader},
    {"reader_state", Operand::Kind::kReaderState},
    {"names", Operand::Kind::kNames},
    {"table", Operand::Kind::kTable},
    {"new_table", Operand::Kind::kNewTable},
    {"file", Operand::Kind::kFile},
    {"no_handle", Operand::Kind::kNoHandle}};

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

double number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  MR_CHECK(error == std::errc() && end == text.data() + text.size() && "not a number");
  return value;
}

// What stands in brackets at the start of `text`, which loses it.
std::vector<double> take_numbers(std::string_view& text, char close) {
  const size_t end = text.find(close);
  MR_CHECK(end != std::string_view::npos && "a bracket is not closed");
  std::vector<double> numbers;
  for (std::string_view part : split(text.substr(1, end - 1), ',')) numbers.push_back(number(part));
  text.remove_prefix(end + 1);
  return numbers;
}

Operand parse_operand(std::string_view text) {
  Operand operand;
  const size_t word = std::min(text.find_first_of("[{0123456789.'"), text.size());
  for (const auto& [name, kind] : kKinds) {
    if (text.substr(0, word) == name) operand.kind = kind;
  }
  MR_CHECK((word == 0 || operand.kind != Operand::Kind::kTensor) && "no such kind of operand");
  text.remove_prefix(word);
  bool has_shape = false;
  if (text.starts_with('[')) {
    Ints sizes;
    for (double size : take_numbers(text, ']')) sizes.push_back(static_cast<int64_t>(size));
    operand.shape = Shape::make(sizes).value();
    has_shape = true;
  }
  if (text.starts_with('{')) {
    operand.values = take_numbers(text, '}');
    if (!has_shape) operand.shape = Shape{static_cast<int64_t>(operand.values.size())};
  } else if (text.starts_with('\'')) {
    MR_CHECK(text.size() >= 2 && text.ends_with('\'') && "a text is not closed");
    operand.text = text.substr(1, text.size() - 2);
  } else if (!text.empty()) {
    operand.values = {number(text)};
  }
  return operand;
}

// Numbers and bools can be made from values; other types get whatever elements they have.
bool is_number(DType dtype) { return (kNumberTypes | TypeSet{DType::kBool}).contains(dtype); }

Tensor make_elements(DType dtype, const Shape& shape, Elements elements, uint64_t seed) {
  if (!is_number(dtype)) return random_tensor(dtype, shape, seed);
  // Many tensors of few elements: one that starts at once.
  std::minstd_rand random(static_cast<uint32_t>(hash_combine(seed, 0)));
  const bool fraction = (kFloating | kComplex).contains(dtype);
  const bool negative = elements == Elements::kSigned && !kWithoutSign.contains(dtype);
  auto draw = [&] {
    const double size = fraction ? static_cast<double>(random() % 16 + 1) / 16
                                 : static_cast<double>(random() % 5 + 1);
    return negative && random() % 2 == 0 ? -size : size;
  };
  std::vector<Complex128> values(static_cast<size_t>(shape.num_elements()));
  for (Complex128& value : values) {
    value = Complex128(draw(), 0);
    if (kComplex.contains(dtype)) value = Complex128(value.real(), draw());
    if (dtype == DType::kBool) value = random() % 2 == 0 ? 1 : 0;
  }
  return make_tensor(dtype, shape, values);
}

// The only folder that ops may reach: it ends with the process.
constexpr const char* kFolder = "memory://every_op";

const Ref<FileAccess>& files() {
  static const Ref<FileAccess>& files = *new Ref<FileAccess>([] {
    const FilePlace place = find_file(str_cat(kFolder, "/there")).value();
    MR_CHECK_OK(place.fs->open_writable(place.path).value()->close());
    return FileAccess::only({.write = {kFolder}}).value();
  }());
  return files;
}

// Makes what is behind a handle argument, and gives the handle to the tester.
class HandleMaker {
 public:
  HandleMaker(OpEnv& env, const ArgDef& arg, const TypeChoice& types)
      : env_(env), suffix_(arg.is_ref ? "" : "V2"), types_(types) {}

  Result<Value> make(Operand::Kind kind, const Tensor& content) {
    switch (kind) {
      case Operand::Kind::kVariable:
        return variable(content);
      case Operand::Kind::kTemporary:
        return first(op("TemporaryVariable")
                         .attr("dtype", content.dtype())
                         .attr("shape", content.shape())
                         .attr("var_name", "temporary"));
      case Operand::Kind::kQueue:
        return queue(content);
      case Operand::Kind::kBarrier:
        return barrier(content);
      case Operand::Kind::kKept:
        return first(op("GetSessionHandle").input(content));
      case Operand::Kind::kStack:
        return stack(content);
      case Operand::Kind::kAccumulator:
      case Operand::Kind::kRowsAccumulator:
        return accumulator(content, kind == Operand::Kind::kRowsAccumulator);
      case Operand::Kind::kGate: {
        MR_TRY_ASSIGN(Value handle, first(op("StepGate")));
        OpTester open = op("StepGateOpen");
        MR_TRY(open.input(handle.tensor).input(Tensor::scalar<int64_t>(7)).run().status());
        return handle;
      }
      case Operand::Kind::kList:
      case Operand::Kind::kLists:
        return list(content, kind == Operand::Kind::kLists);
      case Operand::Kind::kOptional: {
        OpTester make = op("OptionalFromValue");
        return first(make.input_list({content}));
      }
      case Operand::Kind::kDataset:
        return dataset(content);
      case Operand::Kind::kIterator:
        return iterator(content);
      case Operand::Kind::kIteratorName:
      case Operand::Kind::kIteratorState: {
        MR_TRY_ASSIGN(const Value handle, iterator(content));
        const bool name = kind == Operand::Kind::kIteratorName;
        return first(
            op(name ? "IteratorToStringHandle" : "SerializeIterator").input(handle.tensor));
      }
      case Operand::Kind::kSeedGenerator:
        return first(op("DummySeedGenerator"));
      case Operand::Kind::kSparse:
        return sparse(content.dtype());
      case Operand::Kind::kRagged:
        return ragged(content);
      case Operand::Kind::kReader:
        return first(op(str_cat("IdentityReader", suffix_)));
      case Operand::Kind::kReaderState: {
        MR_TRY_ASSIGN(const Value reader, first(op("IdentityReaderV2")));
        return first(op("ReaderSerializeStateV2").input(reader.tensor));
      }
      case Operand::Kind::kNames: {
        MR_TRY_ASSIGN(const Value names, queue(Tensor::scalar(std::string("name"))));
        OpTester close = op(str_cat("QueueClose", suffix_));
        MR_TRY(give(close, names).run().status());
        return names;
      }
      case Operand::Kind::kTable:
      case Operand::Kind::kNewTable:
        return table(kind == Operand::Kind::kTable);
      case Operand::Kind::kFile:
        return file();
      default:
        return array(content, kind == Operand::Kind::kFullArray);
    }
  }

 private:
  OpTester op(std::string_view name) { return OpTester(env_, name); }
  static Result<Value> first(OpTester&& tester) { return first(tester); }
  static Result<Value> first(OpTester& tester) {
    MR_TRY_ASSIGN(std::vector<Value> outputs, tester.run_values());
    return outputs[0];
  }
  static OpTester& give(OpTester& tester, const Value& handle) {
    return handle.is_ref() ? tester.input_ref(handle.cell) : tester.input(handle.tensor);
  }

  Result<Value> variable(const Tensor& content) {
    OpTester make = op("VarHandleOp");
    make.attr("dtype", content.dtype()).attr("shape", PartialShape());
    MR_TRY_ASSIGN(Value handle, first(make.attr("shared_name", str_cat("variable", names_++))));
    MR_TRY(op("AssignVariableOp").input(handle.tensor).input(content).run().status());
    return handle;
  }
  Result<Value> ragged(const Tensor& content) {
    const auto rows = content.rank() == 0 ? 0 : content.dim(0);
    const auto chosen = types_.find("Tsplits");
    const bool narrow = chosen != types_.end() && chosen->second == DType::kInt32;
    OpTester make = op("RaggedTensorToVariant");
    make.attr("batched_input", false)
        .input_list({narrow ? Tensor::vector<int32_t>({0, 0, static_cast<int32_t>(rows)})
                            : Tensor::vector<int64_t>({0, 0, rows})});
    const auto values = types_.find("Tvalues");
    if (values == types_.end()) return first(make.input(content));
    return first(
        make.input(make_elements(values->second, content.shape(), Elements::kPositive, 1)));
  }
  Result<Value> queue(const Tensor& content) {
    OpTester make = op(str_cat("FIFOQueue", suffix_));
    make.attr("shapes", std::vector<PartialShape>{content.shape()});
    MR_TRY_ASSIGN(Value handle,
                  first(make.attr("component_types", std::vector<DType>{content.dtype()})));
    for (int i = 0; i < 2; ++i) {
      OpTester enqueue = op(str_cat("QueueEnqueue", suffix_));
      MR_TRY(give(enqueue, handle).input_list({content}).run().status());
    }
    return handle;
  }
  Result<Value> barrier(const Tensor& content) {
    OpTester make = op("Barrier");
    make.attr("shapes", std::vector<PartialShape>{content.shape()});
    MR_TRY_ASSIGN(Value handle,
                  first(make.attr("component_types", std::vector<DType>{content.dtype()})));
    MR_TRY_ASSIGN(Shape row, Shape{1}.concat(content.shape()));
    MR_TRY_ASSIGN(Tensor values, content.reshaped(row));
    OpTester insert = op("BarrierInsertMany");
    give(insert, handle).attr("component_index", 0).input(Tensor::vector<std::string>({"key"}));
    MR_TRY(insert.input(values).run().status());
    return handle;
  }
  Result<Value> stack(const Tensor& content) {
    OpTester make = op(str_cat("Stack", suffix_));
    if (!suffix_.empty()) make.input(Tensor::scalar<int32_t>(5));
    MR_TRY_ASSIGN(Value handle, first(make.attr("elem_type", content.dtype())));
    OpTester push = op(str_cat("StackPush", suffix_));
    MR_TRY(give(push, handle).input(content).run().status());
    return handle;
  }
  Result<Value> accumulator(const Tensor& content, bool sparse) {
    const std::string form = sparse ? "Sparse" : suffix_.empty() ? "" : "Resource";
    OpTester make = op(form + "ConditionalAccumulator");
    make.attr("dtype", content.dtype()).attr("shape", PartialShape());
    MR_TRY_ASSIGN(Value handle, first(make));
    OpTester apply = op(form + "AccumulatorApplyGradient");
    give(apply, handle).input(Tensor::scalar<int64_t>(0));
    if (sparse) {
      std::vector<int64_t> rows(content.rank() > 0 ? static_cast<size_t>(content.dim(0)) : 0);
      std::iota(rows.begin(), rows.end(), 0);
      apply.attr("has_known_shape", false).input(Tensor::vector(std::span<const int64_t>(rows)));
    }
    apply.input(content);
    if (sparse) apply.input(Tensor::vector<int64_t>({}));
    MR_TRY(apply.run().status());
    return handle;
  }
  Result<Value> array(const Tensor& content, bool full) {
    OpTester make = op("TensorArrayV3");
    MR_TRY_ASSIGN(Value handle,
                  first(make.input(Tensor::scalar<int32_t>(2)).attr("dtype", content.dtype())));
    for (int32_t i = 0; full && i < 2; ++i) {
      MR_TRY(op("TensorArrayWriteV3")
                 .input(handle.tensor)
                 .input(Tensor::scalar(i))
                 .input(content)
                 .input(Tensor::scalar(0.0F))
                 .run()
                 .status());
    }
    return handle;
  }

  Result<Value> list(const Tensor& content, bool in_vector) {
    OpTester make = op("TensorListReserve");
    make.attr("element_dtype", content.dtype()).input(Tensor::scalar<int32_t>(-1));
    MR_TRY_ASSIGN(Value handle, first(make.input(Tensor::scalar<int32_t>(2))));
    for (int32_t i = 0; i < 2; ++i) {
      OpTester set = op("TensorListSetItem");
      MR_TRY_ASSIGN(handle,
                    first(set.input(handle.tensor).input(Tensor::scalar(i)).input(content)));
    }
    if (in_vector) {
      MR_TRY_ASSIGN(handle.tensor, handle.tensor.reshaped(Shape{1}));
    }
    return handle;
  }

  Result<Value> sparse(DType dtype) {
    OpTester pack = op("SerializeManySparse");
    pack.attr("out_type", type_of({"Tserialized"}, DType::kString));
    pack.input(Tensor::of<int64_t>({2, 2}, {0, 0, 1, 1}));
    pack.input(make_elements(dtype, Shape{2}, Elements::kPositive, 1));
    return first(pack.input(Tensor::vector<int64_t>({2, 2})));
  }
  Result<Value> dataset(const Tensor& content) {
    OpTester make = op("TensorDataset");
    make.attr("output_shapes", std::vector<PartialShape>{content.shape()});
    return first(make.input_list({content}));
  }
  Result<Value> iterator(const Tensor& content) {
    MR_TRY_ASSIGN(const Value elements, dataset(content));
    OpTester make = op("IteratorV2");
    make.attr("output_types", std::vector<DType>{content.dtype()});
    make.attr("output_shapes", std::vector<PartialShape>{content.shape()});
    make.attr("container", "").attr("shared_name", str_cat("iterator", names_++));
    MR_TRY_ASSIGN(Value handle, first(make));
    MR_TRY(op("MakeIterator").input(elements.tensor).input(handle.tensor).run().status());
    return handle;
  }
  DType type_of(std::initializer_list<const char*> attrs, DType otherwise) const {
    for (const char* attr : attrs) {
      if (auto found = types_.find(attr); found != types_.end()) return found->second;
    }
    return otherwise;
  }
  Result<Value> table(bool filled) {
    const DType keys = type_of({"Tin", "Tkeys", "Tkey"}, DType::kString);
    const DType values = type_of({"Tout", "Tvalues", "Tval"}, DType::kInt64);
    OpTester make = op(str_cat(filled ? "MutableHashTable" : "HashTable", suffix_));
    MR_TRY_ASSIGN(Value handle, first(make.attr("key_dtype", keys).attr("value_dtype", values)));
    if (!filled) return handle;
    OpTester insert = op(str_cat("LookupTableInsert", suffix_));
    give(insert, handle).input(make_elements(keys, Shape{2}, Elements::kPositive, 1));
    insert.input(make_elements(values, Shape{2}, Elements::kPositive, 2));
    MR_TRY(insert.run().status());
    return handle;
  }
  Result<Value> file() {
    const std::string name = str_cat(kFolder, "/file");
    MR_TRY(op("WriteFile")
               .input(Tensor::scalar(name))
               .input(Tensor::scalar(std::string("first\nsecond\n")))
               .run()
               .status());
    return Value::of(Tensor::scalar(name));
  }

  OpEnv& env_;
  std::string suffix_;
  const TypeChoice& types_;
  static inline int names_ = 0;
};

Status send_first(OpEnv& env, const TypeChoice& types) {
  OpTester send(env, "_Send");
  for (const auto& [name, value] : kEdge) send.attr(name, value);
  return send.input(random_tensor(types.at("tensor_type"), Shape{2, 3}, 1)).run().status();
}

// Saves a tensor "name", in the newer format or in that of old.
Status save(OpEnv& env, const TypeChoice& types, bool old) {
  OpTester save(env, old ? "Save" : "SaveV2");
  save.input(Tensor::scalar(str_cat(kFolder, old ? "/old" : "/new")));
  save.input(Tensor::vector<std::string>({"name"}));
  if (!old) save.input(Tensor::vector<std::string>({""}));
  return save.input_list({random_tensor(content_type(types), Shape{2, 3}, 1)}).run().status();
}
Status save_new(OpEnv& env, const TypeChoice& types) { return save(env, types, false); }
Status save_old(OpEnv& env, const TypeChoice& types) { return save(env, types, true); }

Status stage_first(OpEnv& env, const TypeChoice& types) {
  return OpTester(env, "Stage")
      .attr("shared_name", "area")
      .input_list({random_tensor(types.at("dtypes"), Shape{2, 3}, 1)})
      .run()
      .status();
}

Status keep_sparse(OpEnv& env, const TypeChoice& types) {
  return OpTester(env, "AddSparseToTensorsMap")
      .attr("shared_name", "map")
      .input(Tensor::of<int64_t>({2, 1}, {0, 2}))
      .input(random_tensor(types.at("dtype"), Shape{2}, 1))
      .input(Tensor::vector<int64_t>({4}))
      .run()
      .status();
}

// A value for an attribute that has no default and that no input decides.
AttrValue guess_attr(const AttrDef& attr, const TypeChoice& types) {
  if (attr.type == "int") return std::max<int64_t>(attr.has_minimum ? attr.minimum : 1, 1);
  if (attr.type == "bool") return false;
  if (attr.type == "string") {
    return attr.allowed_strings.empty() ? "name" : attr.allowed_strings[0].c_str();
  }
  if (attr.type == "shape") return PartialShape();
  if (attr.type == "func") return FunctionAttr{"function", {}};
  if (attr.type == "list(float)") return std::vector<float>{0.25F, 0.5F};
  if (attr.type == "tensor") {
    return make_elements(types.at("dtype"), Shape{2, 3}, Elements::kPositive, 1);
  }
  return {};
}

void append_shape(std::string& out, const Operand& operand) {
  for (const auto& [name, kind] : kKinds) {
    if (kind == operand.kind) out += name;
  }
  out += operand.shape.to_string();
  if (!operand.values.empty()) out += str_cat("{", str_join(operand.values, ","), "}");
}

}  // namespace

Tensor make_operand(const Operand& operand, DType dtype, Elements elements, uint64_t seed) {
  if (operand.text && dtype == DType::kString) {
    const auto count = static_cast<size_t>(operand.shape.num_elements());
    const std::vector<std::string> texts(count, *operand.text);
    return Tensor::vector(std::span<const std::string>(texts)).reshaped(operand.shape).value();
  }
  if (operand.values.empty() || !is_number(dtype)) {
    return make_elements(dtype, operand.shape, elements, seed);
  }
  return make_tensor(dtype, operand.shape,
                     std::vector<Complex128>(operand.values.begin(), operand.values.end()));
}

AttrMap call_attrs(const OpCall& call, const TypeChoice& types) {
  AttrMap attrs = call.attrs;
  std::map<std::string, int64_t, std::less<>> sizes;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const ArgDef& arg = call.op->inputs[i];
    const std::string& list = arg.number_attr.empty() ? arg.type_list_attr : arg.number_attr;
    if (!list.empty()) sizes[list] = static_cast<int64_t>(call.arguments[i].size());
  }
  for (const AttrDef& attr : call.op->attrs) {
    const auto size = sizes.find(attr.name);
    if (attr.type == "type") {
      attrs.set(attr.name, types.at(attr.name));
    } else if (attr.type == "list(type)") {
      attrs.set(attr.name,
                std::vector<DType>(size == sizes.end() ? 1 : size->second, types.at(attr.name)));
    } else if (size != sizes.end()) {
      attrs.set(attr.name, size->second);
    } else if (attr.default_value.empty() && attrs.find(attr.name) == nullptr) {
      attrs.set(attr.name, guess_attr(attr, types));
    }
  }
  // Of the components of elements nothing is known.
  const AttrDef* shapes = call.op->find_attr("output_shapes");
  if (shapes != nullptr && shapes->type == "list(shape)" &&
      call.attrs.find("output_shapes") == nullptr) {
    for (const char* name : {"output_types", "Toutput_types"}) {
      const Result<std::vector<DType>> given = read_attr<std::vector<DType>>(attrs, name);
      if (given.ok()) attrs.set("output_shapes", std::vector<PartialShape>(given->size()));
    }
  }
  return attrs;
}

DType content_type(const TypeChoice& types) {
  for (const char* attr : {"dtype", "T", "Tcomponents", "component_types", "elem_type",
                           "element_dtype", "output_types", "Toutput_types", "dtypes", "dt"}) {
    if (auto found = types.find(attr); found != types.end()) return found->second;
  }
  return DType::kFloat;
}

DType operand_type(const ArgDef& arg, const TypeChoice& types) {
  if (arg.dtype != DType::kInvalid) return arg.dtype;
  return types.at(arg.type_attr.empty() ? arg.type_list_attr : arg.type_attr);
}

std::vector<TypeChoice> type_choices(const OpDef& op) {
  std::vector<TypeChoice> choices = {{}};
  // What functions are given besides elements is handed on as it is: one type for all lists.
  const bool calls = std::any_of(op.attrs.begin(), op.attrs.end(),
                                 [](const AttrDef& attr) { return attr.type == "func"; });
  const std::string* first = nullptr;
  for (const AttrDef& attr : op.attrs) {
    if (attr.type != "type" && attr.type != "list(type)") continue;
    if (calls && attr.type == "list(type)" && first != nullptr) {
      for (TypeChoice& choice : choices) choice[attr.name] = choice[*first];
      continue;
    }
    first = &attr.name;
    std::vector<TypeChoice> longer;
    for (const TypeChoice& choice : choices) {
      for (int i = 1; i < kNumDTypes; ++i) {
        const DType dtype = static_cast<DType>(i);
        if (!attr.allowed_types.empty() && !attr.allowed_types.contains(dtype)) continue;
        longer.push_back(choice);
        longer.back()[attr.name] = dtype;
      }
    }
    choices = std::move(longer);
  }
  std::erase_if(choices, [&](const TypeChoice& choice) {
    AttrMap attrs;
    for (const auto& [name, dtype] : choice) attrs.set(name, dtype);
    return !KernelRegistry::global().any(op.name, DeviceKind::kCpu, attrs);
  });
  return choices;
}

std::vector<TypeChoice> covering_choices(const OpDef& op, std::mt19937& random) {
  std::vector<TypeChoice> choices = type_choices(op);
#if defined(MILLRACE_THREAD_SANITIZER) || defined(MILLRACE_ADDRESS_SANITIZER)
  std::shuffle(choices.begin(), choices.end(), random);
  std::set<std::pair<std::string, DType>> seen;
  std::erase_if(choices, [&](const TypeChoice& choice) {
    if (choice.empty()) return false;
    const size_t before = seen.size();
    seen.insert(choice.begin(), choice.end());
    return seen.size() == before;
  });
#else
  static_cast<void>(random);
#endif
  return choices;
}

std::string to_string(const TypeChoice& types) {
  std::string out;
  for (const auto& [name, dtype] : types) out += str_cat(out.empty() ? "" : " ", name, "=", dtype);
  return out;
}

OpCall parse_call(const OpDef& op, std::string_view inputs, AttrMap attrs) {
  OpCall call{.op = &op, .attrs = std::move(attrs)};
  for (std::string_view argument : split(inputs, ' ')) {
    std::vector<Operand>& operands = call.arguments.emplace_back();
    for (std::string_view text : split(argument, '|')) operands.push_back(parse_operand(text));
  }
  return call;
}

namespace {

// Tensors of the shape that elementwise ops take; for optimisers their variables, a gradient, for
// some rows their indices, and numbers.
OpCall plain_call(const OpDef& op) {
  OpCall call{.op = &op};
  const bool makes_dataset = op.outputs.size() == 1 && op.outputs[0].name == "handle" &&
                             op.outputs[0].dtype == DType::kVariant;
  const bool optimizer = !op.inputs.empty() && op.inputs[0].name == "var";
  for (const ArgDef& arg : op.inputs) {
    Operand operand{.shape = Shape{2, 3}};
    if (arg.dtype == DType::kResource) {
      operand.kind = Operand::Kind::kVariable;
    } else if (arg.dtype == DType::kVariant && arg.name.find("dataset") != std::string::npos) {
      operand.kind = Operand::Kind::kDataset;
    } else if (makes_dataset && !arg.is_list()) {
      operand = {.values = {1}};  // sizes, counts, names
    } else if (optimizer && arg.name == "indices") {
      operand = {.shape = Shape{2}, .values = {1, 0}};
    } else if (optimizer && !arg.is_ref && arg.name != "grad" && arg.name != "delta") {
      const bool negative = arg.name == "lr_power";
      operand = {.values = {arg.dtype == DType::kInt64 ? 1 : negative ? -0.5 : 0.5}};
    }
    call.arguments.emplace_back(arg.is_list() ? 2 : 1, operand);
  }
  return call;
}

// What an argument may be tried with, in the order of likeliness: tensors, and for integers what
// describes them, axes, sizes and indices.
constexpr const char* kLikelyTensors[] = {"[2,3]",     "[3]",           "[]", "[2]", "[2,2,3]",
                                          "[1,4,4,3]", "[2,2]{2,1,1,3}"};
constexpr const char* kLikelyIntegers[] = {"[2,3]", "{1,0}", "{2,3}", "1", "{1}", "[2,1]{1,0}"};

std::span<const char* const> likely_operands(const OpDef& op, const ArgDef& arg) {
  TypeSet types = {arg.dtype};
  if (const AttrDef* attr = op.find_attr(arg.type_attr)) types = attr->allowed_types;
  const bool integers = !types.empty() && (types & kIntegers) == types;
  return integers ? std::span<const char* const>(kLikelyIntegers) : kLikelyTensors;
}

bool searchable(const OpDef& op) {
  const OpTraits& is = op.traits;
  if (is.stateful || is.blocks || is.send || is.recv || type_choices(op).empty()) return false;
  return std::none_of(op.inputs.begin(), op.inputs.end(), [](const ArgDef& arg) {
    return arg.is_ref || arg.dtype == DType::kResource || arg.dtype == DType::kVariant;
  });
}

// The first call of likely operands that the op takes, those with the likeliest first; the plain
// one when it takes none.
OpCall find_call(const OpDef& op) {
  constexpr size_t kMostUnlikely = 10;
  const OpCall plain = plain_call(op);
  if (!searchable(op)) return plain;
  const TypeChoice types = type_choices(op)[0];
  OpCall call = plain;
  // Gives the arguments from `i` on operands whose places add up to `rank`.
  const auto try_from = [&](const auto& self, size_t i, size_t rank) -> bool {
    if (i == op.inputs.size()) {
      return rank == 0 && run_call(call, types, Elements::kPositive).ok();
    }
    const std::span<const char* const> likely = likely_operands(op, op.inputs[i]);
    for (size_t place = 0; place < likely.size() && place <= rank; ++place) {
      for (Operand& operand : call.arguments[i]) operand = parse_operand(likely[place]);
      if (self(self, i + 1, rank - place)) return true;
    }
    return false;
  };
  for (size_t rank = 0; rank <= kMostUnlikely; ++rank) {
    if (try_from(try_from, 0, rank)) return call;
  }
  return plain;
}

}  // namespace

OpCall valid_call(const OpDef& op) {
  for (const Row& row : kRows) {
    if (row.op != op.name) continue;
    OpCall call = parse_call(op, row.inputs, row.attrs);
    call.prepare = row.prepare;
    return call;
  }
  static auto* found = new std::map<std::string, OpCall>;
  auto known = found->find(op.name);
  if (known == found->end()) known = found->emplace(op.name, find_call(op)).first;
  return known->second;
}

std::string to_string(const OpCall& call) {
  std::string out = call.op->name;
  for (const std::vector<Operand>& operands : call.arguments) {
    out += ' ';
    for (size_t i = 0; i < operands.size(); ++i) {
      if (i > 0) out += '|';
      append_shape(out, operands[i]);
    }
  }
  for (const auto& [name, value] : call.attrs) out += str_cat(" ", name, "=", value);
  return out;
}

Result<std::vector<Tensor>> run_call(const OpCall& call, const TypeChoice& types,
                                     Elements elements) {
  const OpDef& op = *call.op;
  OpEnv env;
  env.device().set_files(files());  // other paths are made up
  if (call.prepare != nullptr) MR_TRY(call.prepare(env, types));
  OpTester tester(env, op.name);
  for (const auto& [name, value] : call_attrs(call, types)) tester.attr(name, value);

  std::vector<Ref<RefCell>> cells;
  std::vector<std::pair<Tensor, DType>> variables;
  MR_CHECK(call.arguments.size() == op.inputs.size() && "one operand or list for each input");
  uint64_t seed = 1;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const ArgDef& arg = op.inputs[i];
    std::vector<Tensor> tensors;
    for (const Operand& operand : call.arguments[i]) {
      const bool plain =
          operand.kind == Operand::Kind::kTensor || operand.kind == Operand::Kind::kNoHandle;
      const DType dtype = plain ? operand_type(arg, types) : content_type(types);
      Tensor tensor = make_operand(operand, dtype, elements, seed++);
      Ref<RefCell> cell;
      if (!plain) {
        MR_TRY_ASSIGN(Value handle, HandleMaker(env, arg, types).make(operand.kind, tensor));
        tensor = handle.tensor;
        cell = handle.cell;
        if (operand.kind == Operand::Kind::kVariable) variables.emplace_back(tensor, dtype);
      } else if (arg.is_ref) {
        cell = make_ref_cell(tensor);
        cells.push_back(cell);
      }
      if (arg.is_ref) {
        tester.input_ref(cell);
      } else {
        tensors.push_back(tensor);
      }
    }
    if (arg.is_ref) continue;
    if (arg.is_list()) {
      tester.input_list(std::move(tensors));
    } else {
      tester.input(std::move(tensors[0]));
    }
  }

  MR_TRY_ASSIGN(std::vector<Value> values, tester.run_values());
  std::vector<Tensor> results;
  for (Value& value : values) {
    if (value.is_ref()) {
      if (Tensor tensor = value.cell->read(); tensor.valid()) results.push_back(tensor);
    } else if (!value.dead()) {
      results.push_back(value.tensor);
    }
  }
  for (const Ref<RefCell>& cell : cells) results.push_back(cell->read());
  for (const auto& [handle, dtype] : variables) {
    Result<Tensor> value =
        OpTester(env, "ReadVariableOp").attr("dtype", dtype).input(handle).run_one();
    if (value.ok()) results.push_back(*value);
  }
  return results;
}

}  // namespace millrace
