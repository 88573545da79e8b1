// Elements that functions make one after the other: how a generator of Python becomes a dataset.

#include "millrace/data/dataset_op.h"
#include "millrace/data/function.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

// init_func() gives what next_func and finalize_func are given; next_func ends with OUT_OF_RANGE.
class GeneratorDataset final : public Dataset {
 public:
  GeneratorDataset(ElementSpec spec, Closure init, Closure next, Closure finalize)
      : Dataset("Generator", std::move(spec), {}, true),
        init_(std::move(init)),
        next_(std::move(next)),
        finalize_(std::move(finalize)) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(std::vector<Closure> functions,
                  closures_of(ctx, 0, {"init_func", "next_func", "finalize_func"}, "_args"));
    return make_ref<GeneratorDataset>(std::move(spec), std::move(functions[0]),
                                      std::move(functions[1]), std::move(functions[2]));
  }

  const Closure init_, next_, finalize_;
};

class GeneratorIterator final : public IteratorOf<GeneratorDataset> {
 public:
  GeneratorIterator(const GeneratorDataset& dataset, const Iteration& iteration, Function init,
                    Function next, Function finalize)
      : IteratorOf(dataset, iteration),
        init_(std::move(init)),
        next_(std::move(next)),
        finalize_(std::move(finalize)) {}
  ~GeneratorIterator() override {
    if (begun_ && !ended_) finalize();
  }

 protected:
  // What a generator holds is known to it alone: it is run again up to the same place.
  Status fields(StateFields& state) override {
    int64_t made = made_;
    MR_TRY(state.flag(ended_));
    MR_TRY(state.number(made));
    Element out;
    bool end = ended_;
    while (made_ < made && !end) {
      if (environment().stopped()) return environment().status();
      MR_TRY(produce(out, end));
    }
    return ok_status();
  }
  Status produce(Element& out, bool& end) override {
    end = ended_;
    if (end) return ok_status();
    if (!begun_) {
      MR_TRY(init_.call({}, generator_));
      begun_ = true;
    }
    Status status = next_.call(generator_, out);
    if (status.code() != Code::kOutOfRange) {
      ++made_;
      return status;
    }
    ended_ = end = true;
    finalize();
    return ok_status();
  }

 private:
  // Nobody waits for it: the generator may be in use by a thread that waits for this one.
  void finalize() {
    finalize_.start(generator_, [](const Result<std::vector<Tensor>>&) {});
  }

  const Function init_, next_, finalize_;
  Element generator_;
  int64_t made_ = 0;
  bool begun_ = false, ended_ = false;
};

Result<std::unique_ptr<Iterator>> GeneratorDataset::iterate(const Iteration& iteration) const {
  const Ref<Environment>& environment = iteration.environment;
  MR_TRY_ASSIGN(Function init, Function::make(init_, environment));
  MR_TRY_ASSIGN(Function next, Function::make(next_, environment));
  // It is called when all else has been stopped.
  Ref<Environment> last = make_ref<Environment>(Ref<FunctionRunner>(environment->functions()),
                                                Ref<Device>(&environment->device()));
  MR_TRY_ASSIGN(Function finalize, Function::make(finalize_, std::move(last)));
  return std::make_unique<GeneratorIterator>(*this, iteration, std::move(init), std::move(next),
                                             std::move(finalize));
}

}  // namespace

void register_generator(Registry& registry) {
  add_dataset_op(registry,
                 {.name = "GeneratorDataset",
                  .doc = "Elements that next_func makes until it ends with OUT_OF_RANGE.",
                  .inputs = {{"init_func_other_args", "list(Tinit_func_args)"},
                             {"next_func_other_args", "list(Tnext_func_args)"},
                             {"finalize_func_other_args", "list(Tfinalize_func_args)"}},
                  .attrs = {{"init_func", "func", "Gives what the others are given."},
                            {"next_func", "func"},
                            {"finalize_func", "func"},
                            {"Tinit_func_args", "list(type) >= 0"},
                            {"Tnext_func_args", "list(type) >= 0"},
                            {"Tfinalize_func_args", "list(type) >= 0"}},
                  .traits = {.stateful = true}},
                 dataset_kernel<GeneratorDataset::make>);
}

}  // namespace millrace::data
