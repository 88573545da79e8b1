#include "millrace/ops/nn/softmax_rows_loops.h"
