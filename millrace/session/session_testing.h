#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/graph/graph_builder.h"
#include "millrace/ops/register_ops.h"
#include "millrace/session/session.h"

namespace millrace {

inline Tensor f32(float v) { return Tensor::scalar<float>(v); }

// A graph, what adds nodes to it by name, and sessions over it.
class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    EXPECT_TRUE(register_ops().ok());
    graph_ = make_ref<Graph>();
    builder_ = std::make_unique<GraphBuilder>(*graph_);
  }
  Expr placeholder(const char* name) {
    return add("Placeholder", name, {}, {{"dtype", DType::kFloat}});
  }
  Expr constant(float v) { return builder_->constant(f32(v)); }
  // Adds a node under exactly this name.
  Expr add(const char* op, const char* name, std::vector<Expr> inputs, AttrMap attrs = {}) {
    std::vector<Output> outputs;
    for (Expr e : inputs) outputs.push_back(GraphBuilder::output(e));
    Result<NodeId> id = builder_->add(op, name, outputs, attrs);
    EXPECT_TRUE(id.ok()) << id.status().to_string();
    return builder_->expr({id.ok() ? *id : 0, 0});
  }
  std::unique_ptr<Session> session(SessionOptions options = {}) {
    Result<std::unique_ptr<Session>> s = Session::create(graph_, options);
    EXPECT_TRUE(s.ok()) << s.status().to_string();
    return std::move(s).value();
  }
  // The code of a run that must fail, and its message.
  Code code_of(const Result<std::vector<Tensor>>& result) {
    EXPECT_FALSE(result.ok());
    message_ = result.status().to_string();
    return result.status().code();
  }
  bool said(std::string_view text) { return message_.find(text) != std::string::npos; }

  Ref<Graph> graph_;
  std::unique_ptr<GraphBuilder> builder_;
  std::string message_;
};

}  // namespace millrace
