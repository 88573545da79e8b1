#include "millrace/api/saver.h"

#include <gtest/gtest.h>

#include "millrace/api/layers.h"
#include "millrace/api/losses.h"
#include "millrace/api/ops.h"
#include "millrace/api/optimizers.h"
#include "millrace/base/file_systems.h"
#include "millrace/io/checkpoint_reader.h"
#include "millrace/io/safetensors.h"

namespace millrace {
namespace {

// A model with an optimiser that remembers.
class Model {
 public:
  explicit Model(int64_t width = 3) : width_(width), vars_(root_) {
    Expr y = layers::dense(root_, vars_, "dense", root_.constant(Tensor::of<float>({1, 2}, {1, 2})),
                           width_);
    loss_ = ops::l2loss(root_, y - 1.0);
    Adam adam(vars_, 0.1);
    train_ = adam.minimize(root_, loss_, &global_step(vars_));
    for (Variable* v : vars_.all()) values_.push_back(v->read(root_));
    saver_ = std::make_unique<Saver>(vars_);
    Result<ClientSession> session = ClientSession::create(root_);
    MR_CHECK(session.ok());
    session_ = std::make_unique<ClientSession>(std::move(*session));
    MR_CHECK_OK(session_->run({}, {}, {vars_.initialize()}).status());
  }
  void step() { MR_CHECK_OK(session_->run({}, {}, {train_}).status()); }
  std::vector<Tensor> values() { return session_->run({}, values_).value(); }
  Saver& saver() { return *saver_; }
  ClientSession& session() { return *session_; }

 private:
  const int64_t width_;
  Scope root_ = Scope::make_root();
  Variables vars_;
  Expr loss_;
  Operation train_;
  std::vector<Expr> values_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<ClientSession> session_;
};

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), bit_equal);
}

TEST(SaverTest, TrainingGoesOnWhereItWasSaved) {
  const std::string prefix = "memory://saver_test/model";
  EXPECT_FALSE(Saver::exists(prefix));
  Model first;
  for (int i = 0; i < 5; ++i) first.step();
  ASSERT_TRUE(first.saver().save(first.session(), prefix).ok());
  EXPECT_TRUE(Saver::exists(prefix));
  Model second;
  ASSERT_TRUE(second.saver().restore(second.session(), prefix).ok());
  for (int i = 0; i < 5; ++i) {
    first.step();
    second.step();
  }
  EXPECT_TRUE(same(first.values(), second.values()));
}

TEST(SaverTest, RandomNumbersGoOnWhereTheyWereSaved) {
  const std::string prefix = "memory://saver_test/random";
  const auto draw = [](bool restores, int runs, const std::string& to) {
    Scope root = Scope::make_root();
    Variables vars(root);
    (void)global_step(vars);
    Expr numbers =
        ops::random_uniform(root, root.constant(Tensor::vector<int32_t>({3})), DType::kFloat);
    Saver saver(vars);
    ClientSession session = ClientSession::create(root).value();
    MR_CHECK_OK(session.run({}, {}, {vars.initialize()}).status());
    if (restores) MR_CHECK_OK(saver.restore(session, to));
    std::vector<Tensor> out;
    for (int i = 0; i < runs; ++i) out.push_back(session.run({}, {numbers}).value()[0]);
    if (!restores) MR_CHECK_OK(saver.save(session, to));
    for (int i = 0; i < 2; ++i) out.push_back(session.run({}, {numbers}).value()[0]);
    return std::vector<Tensor>(out.end() - 2, out.end());
  };
  const std::vector<Tensor> unbroken = draw(false, 5, prefix);
  EXPECT_TRUE(same(draw(true, 0, prefix), unbroken));
}

TEST(SaverTest, ASaveBesideTrainingHoldsTheValuesOfItsMoment) {
  const std::string prefix = "memory://saver_test/beside";
  Model model;
  for (int i = 0; i < 20; ++i) {
    const std::vector<Tensor> before = model.values();
    ASSERT_TRUE(model.saver().save_async(model.session(), prefix).ok());
    for (int k = 0; k < 3; ++k) model.step();
    ASSERT_TRUE(model.saver().wait(model.session(), prefix).ok());
    const std::vector<Tensor> after = model.values();
    ASSERT_TRUE(model.saver().restore(model.session(), prefix).ok());
    EXPECT_TRUE(same(model.values(), before));
    EXPECT_FALSE(same(before, after));
  }
}

TEST(SaverTest, ACheckpointOfAnotherModelChangesNothing) {
  const std::string prefix = "memory://saver_test/wide";
  Model wide(4);
  ASSERT_TRUE(wide.saver().save(wide.session(), prefix).ok());
  Model model;
  const std::vector<Tensor> before = model.values();
  EXPECT_EQ(model.saver().restore(model.session(), prefix).code(), Code::kInvalidArgument);
  EXPECT_EQ(model.saver().restore(model.session(), "memory://saver_test/none").code(),
            Code::kNotFound);
  EXPECT_TRUE(same(model.values(), before));
}

TEST(SaverTest, RestoresFromSafetensors) {
  const std::string prefix = "memory://saver_test/converted";
  Model model;
  const std::vector<Tensor> before = model.values();
  ASSERT_TRUE(model.saver().save(model.session(), prefix).ok());
  FileSystem& fs = memory_file_system();
  const Ref<CheckpointReader> from = CheckpointReader::open(fs, "saver_test/converted").value();
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const StoredTensor& tensor : from->tensors()) {
    if (tensor.dtype == DType::kString) continue;  // the state of random ops
    tensors.emplace_back(tensor.name, from->read(tensor.name).value());
  }
  ASSERT_TRUE(write_safetensors(fs, "saver_test/x.safetensors", tensors).ok());
  model.step();
  ASSERT_TRUE(model.saver().restore(model.session(), "memory://saver_test/x.safetensors").ok());
  EXPECT_TRUE(same(model.values(), before));
}

}  // namespace
}  // namespace millrace
