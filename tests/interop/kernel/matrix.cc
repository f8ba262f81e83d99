// SPDX-License-Identifier: Apache-2.0
// Holds Verbena's device against another verbs device, every operation and every refusal in both directions.
//
//   verbs_peer 7471                                                  there
//   matrix --device 10.77.0.1 --peer 10.77.0.11:7471                 here
//
// One line per case, "ok NAME" or "FAILED NAME: DETAIL", and the count. Exit status 1 when a case failed, 2
// when the matrix could not run.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cases.h"
#include "peer_side.h"
#include "verbena/device/device.h"
#include "verbena_side.h"

namespace verbena::interop {
namespace {

struct Options {
  std::string device, peer, pcap, filter;
  std::string peer_device = "rxe0";
  std::uint32_t peer_gid = 1;
  std::vector<std::uint32_t> mtus{1024, 4096};
  bool mixed = false;
  std::uint32_t rounds = 1;
  std::uint64_t seed = 1;
};

// Both ends for the whole run; a report per case.
class Matrix {
 public:
  Matrix(const Options& options, Device& device, Report& report, PeerSide& peer)
      : options_(options), report_(report), verbena_(report, device), peer_(peer) {}

  // The number of failed cases.
  int run() {
    for (std::uint32_t round = 0; round < options_.rounds; ++round)
      for (const std::uint32_t mtu : options_.mtus) run_cases(mtu, options_.seed + round);
    std::printf("%d cases, %d failed\n", cases_, failed_);
    return failed_;
  }

 private:
  void run_cases(std::uint32_t mtu, std::uint64_t seed) {
    if (options_.mixed) return run_both_ways({"mixed/seed_" + std::to_string(seed), run_mixed}, mtu, seed);
    for (const auto& cases : {transfer_cases(mtu), atomic_cases(), receive_cases(), refusal_cases(),
                              silence_cases(), queue_cases()})
      for (const Case& one : cases) run_both_ways(one, mtu, ++seed);
  }

  void run_both_ways(const Case& one, std::uint32_t mtu, std::uint64_t seed) {
    const std::string prefix = "mtu_" + std::to_string(mtu) + "/";
    run_one(prefix + "verbena_asks/" + one.name, one, {verbena_, peer_, report_, mtu, seed});
    run_one(prefix + "peer_asks/" + one.name, one, {peer_, verbena_, report_, mtu, seed});
  }

  void run_one(const std::string& name, const Case& one, World world) {
    if (name.find(options_.filter) == std::string::npos || peer_.lost()) return;
    if (one.posts_misaligned_atomic && world.requester.manners().post_refuses_misaligned) return;
    report_ = {};
    one.run(world);
    // Pairs go first at the side that asks: it must not retry into nothing.
    world.requester.release();
    world.responder.release();
    ++cases_;
    failed_ += report_.failed() ? 1 : 0;
    if (report_.failed())
      std::printf("FAILED %s: %s\n", name.c_str(), report_.failure().c_str());
    else
      std::printf("ok %s\n", name.c_str());
    std::fflush(stdout);
  }

  const Options& options_;
  Report& report_;
  VerbenaSide verbena_;
  PeerSide& peer_;
  int cases_ = 0;
  int failed_ = 0;
};

int fail(const std::string& what) {
  std::fprintf(stderr, "matrix: %s\n", what.c_str());
  return 2;
}

int run(const Options& options) {
  OpenOptions open;
  open.device = options.device;
  open.pcap_file = options.pcap;
  auto device = Device::open(open);
  if (!device) return fail(device.error().to_string());
  Report report;
  auto peer = PeerSide::connect(report, options.peer, options.peer_device, options.peer_gid);
  if (!peer) return fail(peer.error().to_string());
  for (const std::uint32_t mtu : options.mtus)
    if (mtu > device->info().active_mtu || mtu > (*peer)->largest_mtu())
      return fail("path MTU " + std::to_string(mtu) + " is more than both ends can do (here " +
                  std::to_string(device->info().active_mtu) + ", there " +
                  std::to_string((*peer)->largest_mtu()) + "); raise the links' MTU or choose with --mtu");
  return Matrix(options, *device, report, **peer).run() == 0 && !(*peer)->lost() ? 0 : 1;
}

}  // namespace
}  // namespace verbena::interop

int main(int argc, char** argv) {
  verbena::interop::Options options;
  CLI::App app{"Holds Verbena's device against another verbs device"};
  app.add_option("--device", options.device, "Address of Verbena's device")->required()->type_name("ADDR");
  app.add_option("--peer", options.peer, "Where verbs_peer listens")->required()->type_name("HOST:PORT");
  app.add_option("--peer-device", options.peer_device, "Verbs device there")->capture_default_str();
  app.add_option("--peer-gid", options.peer_gid, "Index of its GID")->capture_default_str();
  app.add_option("--mtu", options.mtus, "Path MTUs")
      ->capture_default_str()
      ->check(CLI::IsMember({256, 512, 1024, 2048, 4096}));
  app.add_option("--filter", options.filter, "Only cases whose name contains this")->type_name("TEXT");
  app.add_option("--pcap", options.pcap, "Write every packet to this file, for Wireshark")->type_name("FILE");
  app.add_flag("--mixed", options.mixed,
               "Drawn requests in both directions at once, instead of the cases one by one");
  app.add_option("--rounds", options.rounds, "Repeat, each time with the next seed")->capture_default_str();
  app.add_option("--seed", options.seed, "The first seed")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return verbena::interop::run(options);
}
