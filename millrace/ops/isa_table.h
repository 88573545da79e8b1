#pragma once

#include "millrace/base/isa.h"

// Loops that are compiled once for each instruction set, and the one place that chooses a copy.
//
// A family of loops is a struct of function pointers, its table. One source, x_isa.cc, fills it:
//
//   namespace {
//   ... the loops, written with vector.h ...
//   constexpr FoldTable kFoldTable = {...};
//   }  // namespace
//
//   template <>
//   const FoldTable& isa_table<FoldTable, Isa::MR_ISA>() {
//     return kFoldTable;
//   }
//
// The build compiles it for the baseline and for each instruction set of the architecture
// (MillraceCompiler.cmake), with MR_ISA and MR_ISA_NAMESPACE (vector.h) naming the set. Callers
// take isa_table<FoldTable>().

namespace millrace {

// The table in the copy for one instruction set.
template <class Table, Isa isa>
const Table& isa_table();

template <class Table>
const Table& isa_table(Isa isa) {
  switch (isa) {
#if defined(__x86_64__)
    case Isa::kAvx512:
      return isa_table<Table, Isa::kAvx512>();
    case Isa::kAvx2:
      return isa_table<Table, Isa::kAvx2>();
#endif
    default:
      return isa_table<Table, Isa::kBaseline>();
  }
}

// The table to use on this machine.
template <class Table>
const Table& isa_table() {
  static const Table& table = isa_table<Table>(best_isa());
  return table;
}

}  // namespace millrace
