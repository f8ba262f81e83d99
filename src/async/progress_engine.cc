// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/progress_engine.h"

#include "async/engine_state.h"

namespace verbena {

ProgressEngine::ProgressEngine(std::unique_ptr<EngineState> state) : state_(std::move(state)) {}
ProgressEngine::ProgressEngine(ProgressEngine&& other) noexcept : state_(std::move(other.state_)) { settle(); }
ProgressEngine& ProgressEngine::operator=(ProgressEngine&& other) noexcept {
  state_ = std::move(other.state_);
  settle();
  return *this;
}
// What was made with it finds it where it is now, to begin with where create() put it.
void ProgressEngine::settle() {
  if (state_ != nullptr) state_->set_owner(*this);
}
ProgressEngine::~ProgressEngine() = default;

Result<ProgressEngine> ProgressEngine::create(Device& device, const EngineOptions& options) {
  if (options.spin < Duration{})
    return Error(ErrorCode::InvalidArgument, "create a progress engine: it cannot spin for a negative time");
  auto state = std::make_unique<EngineState>(options);
  if (auto ok = state->add(device); !ok) return ok.error();
  return ProgressEngine{std::move(state)};
}

Result<void> ProgressEngine::add(Device& device) { return state_->add(device); }
bool ProgressEngine::run_once() { return state_->run_for_program(); }
bool ProgressEngine::run_asking(bool (*ask)(const void*), const void* by, Instant deadline) {
  return state_->run_until([=] { return ask(by); }, deadline);
}
void ProgressEngine::wait(Instant until) { state_->wait(until); }
void ProgressEngine::wake() { state_->wake(); }
void ProgressEngine::drive(const detail::Child& task, detail::Join& end) { state_->drive(task, end); }
void ProgressEngine::spawn(Task<void> task) { state_->spawn(std::move(task)); }
int ProgressEngine::fd() const { return state_->fd(); }
bool ProgressEngine::prepare_wait() { return state_->prepare_wait(); }
Instant ProgressEngine::now() const { return state_->now(); }
ProgressEngine& ProgressEngine::of(EngineState& state) { return state.owner(); }
Device& ProgressEngine::device() { return state_->first().device(); }

ProgressEngine::Gathered::Gathered(ProgressEngine& engine) : state_(engine.state()) {
  state_.gather_posts(true);
}
ProgressEngine::Gathered::~Gathered() { state_.gather_posts(false); }

}  // namespace verbena
