// SPDX-License-Identifier: Apache-2.0
// What an operation costs in each of its three forms: polled, with a callback, awaited. One thread with both
// devices, 32 WRITEs of 8 bytes in flight; processor time of that thread, the best of many rounds that take
// turns.
//
//   bench_forms                  prints "polled<TAB>ns", "callback<TAB>ns", "awaited<TAB>ns"
//   bench_forms FORM COUNT       so many operations in one form, for callgrind
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr int kDepth = 32;
constexpr int kRounds = 40;
constexpr int kPerRound = 20'000;

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "bench_forms: %s\n", result.error().to_string().c_str());
  std::exit(1);
}

Device open() {
  OpenOptions options;
  options.service_thread = false;  // all work is this thread's
  return must(Device::open(options));
}

double thread_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

class Forms {
 public:
  Forms() : engine_(must(ProgressEngine::create(client_, {.wait = WaitMode::Busy}))) {
    if (!engine_.add(server_)) std::exit(1);
    Listener listener = must(Listener::create(engine_, {.device = &server_}));
    listener.on_request([&] { far_.emplace(must(listener.poll_request()->accept())); });
    near_.emplace(must(Connection::connect(engine_, listener.address().to_string())));
    static_cast<void>(must(near_->write(here_.local(), there_.remote()).wait()));
  }

  void polled(int count) {
    std::array<Operation, kDepth> operations;
    int started = 0, finished = 0;
    for (Operation& o : operations) {
      near_->write(o, here_.local(), there_.remote());
      ++started;
    }
    std::array<bool, kDepth> counted{};
    while (finished < count) {
      engine_.run_once();
      const ProgressEngine::Gathered together(engine_);
      for (std::size_t i = 0; i < operations.size(); ++i) {
        Operation& o = operations[i];
        if (!o.done() || counted[i]) continue;
        check(o.result());
        ++finished;
        counted[i] = started >= count;
        if (counted[i]) continue;
        ++started;
        near_->write(o, here_.local(), there_.remote());
      }
    }
  }

  void callback(int count) {
    std::array<Operation, kDepth> operations;
    int started = 0, finished = 0;
    for (Operation& o : operations) {
      o.on_done([&, this](Operation& self) {
        check(self.result());
        ++finished;
        if (started >= count) return;
        ++started;
        near_->write(self, here_.local(), there_.remote());
      });
      near_->write(o, here_.local(), there_.remote());
      ++started;
    }
    while (finished < count) engine_.run_once();
  }

  void awaited(int count) {
    std::vector<Task<void>> tasks;
    for (int i = 0; i < kDepth; ++i) tasks.push_back(write_often(count / kDepth));
    engine_.run(when_all(std::move(tasks)));
  }

 private:
  static void check(const Result<OperationOutcome>& outcome) {
    if (!outcome) static_cast<void>(must(outcome));
  }
  Task<void> write_often(int count) {
    Operation operation;
    for (int i = 0; i < count; ++i) {
      auto outcome = co_await near_->write(operation, here_.local(), there_.remote());
      check(outcome);
    }
  }

  Device client_ = open(), server_ = open();
  ProgressEngine engine_;
  MemoryRegion here_ = must(client_.allocate_memory(8)), there_ = must(server_.allocate_memory(8));
  std::optional<Connection> near_, far_;
};

struct Form {
  const char* name;
  void (Forms::*run)(int);
  double best_ns = 1e18;
};

}  // namespace

int main(int argc, char** argv) {
  std::array<Form, 3> all{
      {{"polled", &Forms::polled}, {"callback", &Forms::callback}, {"awaited", &Forms::awaited}}};
  Forms forms;
  if (argc == 3) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Form& f) { return argv[1] == std::string(f.name); });
    if (found == all.end()) return 2;
    (forms.*found->run)(std::atoi(argv[2]));
    return 0;
  }
  for (int round = 0; round < kRounds; ++round) {
    for (Form& form : all) {
      const double before = thread_ns();
      (forms.*form.run)(kPerRound);
      if (round != 0) form.best_ns = std::min(form.best_ns, (thread_ns() - before) / kPerRound);
    }
  }
  for (const Form& form : all) std::printf("%s\t%.1f\tns\n", form.name, form.best_ns);
}
