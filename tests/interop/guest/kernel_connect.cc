// SPDX-License-Identifier: Apache-2.0
// Connects or listens through the kernel's rdma_cm, says what happened, line by line, and exchanges one message.
//
//   kernel_connect listen ADDRESS PORT accept|reject TEXT     private data of the answer
//   kernel_connect connect ADDRESS PORT TEXT                  private data of the request
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr std::size_t kMessageBytes = 32;

[[noreturn]] void fail(const char* what) {
  std::printf("failed %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void check(int result, const char* what) {
  if (result != 0) fail(what);
}

rdma_addrinfo* resolve(const char* address, const char* port, int flags) {
  rdma_addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* found = nullptr;
  check(rdma_getaddrinfo(address, port, &hints, &found), "rdma_getaddrinfo");
  return found;
}

ibv_qp_init_attr queue_attributes() {
  ibv_qp_init_attr attributes{};
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 4;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.sq_sig_all = 1;
  return attributes;
}

// Few retries: the kernel's device takes 7 for "for ever".
rdma_conn_param parameters(const std::string& text) {
  rdma_conn_param values{};
  values.private_data = text.data();
  values.private_data_len = static_cast<std::uint8_t>(text.size());
  values.responder_resources = values.initiator_depth = 1;
  values.retry_count = 3;
  values.rnr_retry_count = 7;
  return values;
}

std::string private_data(const rdma_cm_event* event) {
  if (event == nullptr || event->param.conn.private_data == nullptr) return {};
  const char* text = static_cast<const char*>(event->param.conn.private_data);
  return {text, strnlen(text, event->param.conn.private_data_len)};
}

struct Mailbox {
  explicit Mailbox(rdma_cm_id* owner) : id(owner) {
    in = rdma_reg_msgs(id, received.data(), received.size());
    out = rdma_reg_msgs(id, sent.data(), sent.size());
    if (in == nullptr || out == nullptr) fail("rdma_reg_msgs");
    check(rdma_post_recv(id, nullptr, received.data(), received.size(), in), "rdma_post_recv");
  }
  ~Mailbox() {
    rdma_dereg_mr(in);
    rdma_dereg_mr(out);
  }
  void send(const char* text) {
    std::snprintf(sent.data(), sent.size(), "%s", text);
    check(rdma_post_send(id, nullptr, sent.data(), sent.size(), out, 0), "rdma_post_send");
    ibv_wc done{};
    if (rdma_get_send_comp(id, &done) != 1 || done.status != IBV_WC_SUCCESS) fail("send");
  }
  void receive() {
    ibv_wc done{};
    if (rdma_get_recv_comp(id, &done) != 1 || done.status != IBV_WC_SUCCESS) {
      std::printf("broken %s\n", ibv_wc_status_str(done.status));
      std::exit(1);
    }
    std::printf("received %s\n", received.data());
  }
  rdma_cm_id* id;
  std::array<char, kMessageBytes> received{}, sent{};
  ibv_mr* in = nullptr;
  ibv_mr* out = nullptr;
};

int listen(const char* address, const char* port, bool accepts, const std::string& text) {
  rdma_addrinfo* where = resolve(address, port, RAI_PASSIVE);
  ibv_qp_init_attr attributes = queue_attributes();
  rdma_cm_id* listener = nullptr;
  check(rdma_create_ep(&listener, where, nullptr, &attributes), "rdma_create_ep");
  check(rdma_listen(listener, 8), "rdma_listen");
  std::printf("listening\n");
  rdma_cm_id* id = nullptr;
  check(rdma_get_request(listener, &id), "rdma_get_request");
  std::printf("request %s\n", private_data(id->event).c_str());
  if (!accepts) {
    check(rdma_reject(id, text.data(), static_cast<std::uint8_t>(text.size())), "rdma_reject");
    std::printf("rejected\n");
    return 0;
  }
  Mailbox mailbox(id);
  rdma_conn_param values = parameters(text);
  check(rdma_accept(id, &values), "rdma_accept");
  std::printf("established\n");
  mailbox.receive();
  mailbox.send("pong");
  // A synchronous identifier keeps its last event until the next is asked for: here the end of the connection.
  while (rdma_get_cm_event(id->channel, &id->event) == 0) {
    const rdma_cm_event_type type = id->event->event;
    rdma_ack_cm_event(id->event);
    id->event = nullptr;
    if (type != RDMA_CM_EVENT_DISCONNECTED) continue;
    std::printf("disconnected\n");
    break;
  }
  rdma_disconnect(id);
  return 0;
}

int connect(const char* address, const char* port, const std::string& text) {
  rdma_addrinfo* where = resolve(address, port, 0);
  ibv_qp_init_attr attributes = queue_attributes();
  rdma_cm_id* id = nullptr;
  check(rdma_create_ep(&id, where, nullptr, &attributes), "rdma_create_ep");
  Mailbox mailbox(id);
  rdma_conn_param values = parameters(text);
  if (rdma_connect(id, &values) != 0) {
    if (id->event == nullptr) fail("rdma_connect");
    std::printf("%s %d %s\n", rdma_event_str(id->event->event), id->event->status,
                private_data(id->event).c_str());
    return 3;
  }
  std::printf("established %s\n", private_data(id->event).c_str());
  mailbox.send("ping");
  mailbox.receive();
  check(rdma_disconnect(id), "rdma_disconnect");
  std::printf("disconnected\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "listen" && argc == 6)
    return listen(argv[2], argv[3], std::string_view(argv[4]) == "accept", argv[5]);
  if (mode == "connect" && argc == 5) return connect(argv[2], argv[3], argv[4]);
  std::fprintf(stderr, "usage: kernel_connect listen ADDRESS PORT accept|reject TEXT | connect ADDRESS PORT TEXT\n");
  return 2;
}
