// SPDX-License-Identifier: Apache-2.0
// What a call returns and nobody looks at: an operation that ends at once and takes its connection along, a message
// that was not sent, an error that nobody hears of.
#include "verbena/verbena.h"

using namespace verbena;

struct World {
  ProgressEngine& engine;
  Device& device;
  CompletionQueue& queue;
  QueuePair& pair;
  SharedReceiveQueue& shared;
  Connection& connection;
  Listener& listener;
  ReceivePool& pool;
  messaging::Sender& sender;
  messaging::Receiver& receiver;
  ScatterGather local;
  RemoteMemory remote;
  std::span<const std::byte> bytes;
};

#ifndef VERBENA_RIGHT_USE

void use(World& w, std::span<Completion> completions, std::span<messaging::Message> messages) {
  w.connection.send(w.local);  // refused: nodiscard
  w.connection.receive(w.local);  // refused: nodiscard
  w.connection.write(w.local, w.remote);  // refused: nodiscard
  w.connection.fetch_and_add(w.remote, 1);  // refused: nodiscard
  w.pool.receive(w.local);  // refused: nodiscard
  w.connection.close();  // refused: nodiscard
  w.connection.post_send({});  // refused: nodiscard
  w.connection.try_write_now(w.bytes, w.remote);  // refused: nodiscard
  w.connection.try_read_now(ShortRead{});  // refused: nodiscard
  w.connection.async_close();  // refused: nodiscard
  Device::open();  // refused: nodiscard
  w.device.register_memory(completions);  // refused: nodiscard
  w.device.poll_event();  // refused: nodiscard
  w.queue.poll(completions);  // refused: nodiscard
  w.queue.poll_one();  // refused: nodiscard
  w.pair.post_receive(ReceiveRequest{});  // refused: nodiscard
  w.pair.try_write_now(ShortWrite{});  // refused: nodiscard
  w.pair.try_read_now(ShortRead{});  // refused: nodiscard
  w.shared.post(ReceiveRequest{});  // refused: nodiscard
  w.shared.withdraw(1);  // refused: nodiscard
  w.listener.poll_request();  // refused: nodiscard
  w.engine.sleep(Duration::seconds(1));  // refused: nodiscard
  w.engine.prepare_wait();  // refused: nodiscard
  w.sender.try_send(w.bytes);  // refused: nodiscard
  w.sender.async_send(w.bytes);  // refused: nodiscard
  w.sender.try_reserve(1);  // refused: nodiscard
  w.receiver.try_receive();  // refused: nodiscard
  w.receiver.try_receive(messages);  // refused: nodiscard
  w.receiver.async_receive();  // refused: nodiscard
}

#else

void use(World& w, Operation& kept, std::span<Completion> completions) {
  w.connection.send(kept, w.local);  // it is there already, and stays
  w.pool.receive(kept, w.local);
  const Operation begun = w.connection.write(w.local, w.remote);
  if (!w.connection.close() || !w.connection.post_send({})) return;
  while (w.device.poll_event()) {
  }
  (void)w.queue.poll(completions);
  if (w.sender.try_send(w.bytes) && w.shared.withdraw(1)) w.engine.spawn([]() -> Task<> { co_return; }());
}

#endif
