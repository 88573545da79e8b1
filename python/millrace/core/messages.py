"""The message classes that `millrace.compat.v1` offers by name."""

from millrace import protos
from millrace.core.export import export

AssetFileDef = export(v1="AssetFileDef")(protos.AssetFileDef)
AttrValue = export(v1="AttrValue")(protos.AttrValue)
BytesList = export(v1=("BytesList", "train.BytesList"), v2="train.BytesList")(protos.BytesList)
ClusterDef = export(v1="train.ClusterDef", v2="train.ClusterDef")(protos.ClusterDef)
ConfigProto = export(v1="ConfigProto")(protos.ConfigProto)
DataType = export(v1="DataType")(protos.DataType)
DebugOptions = export(v1="DebugOptions")(protos.DebugOptions)
DebugTensorWatch = export(v1="DebugTensorWatch")(protos.DebugTensorWatch)
Event = export(v1=("Event", "summary.Event"))(protos.Event)
Example = export(v1=("Example", "train.Example"), v2="train.Example")(protos.Example)
Feature = export(v1=("Feature", "train.Feature"), v2="train.Feature")(protos.Feature)
FeatureList = export(v1=("FeatureList", "train.FeatureList"), v2="train.FeatureList")(
    protos.FeatureList
)
FeatureLists = export(v1=("FeatureLists", "train.FeatureLists"), v2="train.FeatureLists")(
    protos.FeatureLists
)
Features = export(v1=("Features", "train.Features"), v2="train.Features")(protos.Features)
FloatList = export(v1=("FloatList", "train.FloatList"), v2="train.FloatList")(protos.FloatList)
FunctionDef = export(v1="FunctionDef")(protos.FunctionDef)
FunctionDefLibrary = export(v1="FunctionDefLibrary")(protos.FunctionDefLibrary)
GPUOptions = export(v1="GPUOptions")(protos.GPUOptions)
GradientDef = export(v1="GradientDef")(protos.GradientDef)
GraphDef = export(v1="GraphDef")(protos.GraphDef)
GraphOptions = export(v1="GraphOptions")(protos.GraphOptions)
HistogramProto = export(v1="HistogramProto")(protos.HistogramProto)
Int64List = export(v1=("Int64List", "train.Int64List"), v2="train.Int64List")(protos.Int64List)
JobDef = export(v1="train.JobDef", v2="train.JobDef")(protos.JobDef)
LogMessage = export(v1="LogMessage")(protos.LogMessage)
MetaGraphDef = export(v1="MetaGraphDef")(protos.MetaGraphDef)
NameAttrList = export(v1="NameAttrList")(protos.NameAttrList)
NodeDef = export(v1="NodeDef")(protos.NodeDef)
OpDef = export(v1="OpDef")(protos.OpDef)
OpList = export(v1="OpList")(protos.OpList)
OptimizerOptions = export(v1="OptimizerOptions")(protos.OptimizerOptions)
QueueRunnerDef = export(v1="QueueRunnerDef")(protos.QueueRunnerDef)
RPCOptions = export(v1="RPCOptions")(protos.RPCOptions)
RunMetadata = export(v1="RunMetadata")(protos.RunMetadata)
RunOptions = export(v1="RunOptions")(protos.RunOptions)
SaverDef = export(v1=("SaverDef", "train.SaverDef"))(protos.SaverDef)
SequenceExample = export(
    v1=("SequenceExample", "train.SequenceExample"), v2="train.SequenceExample"
)(protos.SequenceExample)
ServerDef = export(v1=("ServerDef", "train.ServerDef"), v2="train.ServerDef")(protos.ServerDef)
SessionLog = export(v1=("SessionLog", "summary.SessionLog"))(protos.SessionLog)
Summary = export(v1=("Summary", "summary.Summary"))(protos.Summary)
SummaryDescription = export(v1="summary.SummaryDescription")(protos.SummaryDescription)
SummaryMetadata = export(v1="SummaryMetadata")(protos.SummaryMetadata)
TaggedRunMetadata = export(v1="summary.TaggedRunMetadata")(protos.TaggedRunMetadata)
TensorInfo = export(v1="TensorInfo")(protos.TensorInfo)
TensorShapeProto = export(v1="TensorShapeProto")(protos.TensorShapeProto)
