#pragma once

namespace millrace {

class Registry;

// Queues, barriers, accumulators and tensors that steps share, and stacks that live for one step.
void register_queue_ops(Registry& registry);

// Its parts, one per source.
void register_queues(Registry& registry);        // FIFOQueue RandomShuffleQueue ... and V2 forms
void register_queue_access(Registry& registry);  // QueueEnqueue QueueDequeue QueueClose ...
void register_barrier(Registry& registry);       // Barrier BarrierInsertMany BarrierTakeMany ...
void register_accumulators(Registry& registry);  // ConditionalAccumulator AccumulatorApply...
void register_sparse_tensors_map(Registry& registry);  // AddSparseToTensorsMap Take...
void register_session_tensor(Registry& registry);      // GetSessionHandle GetSessionTensor ...
void register_stage(Registry& registry);               // Stage Unstage StageSize
void register_stack(Registry& registry);               // Stack StackPush StackPop StackClose ...

}  // namespace millrace
