// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/port_owner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace verbena::soft::udp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr const char* kHeading =
    "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref "
    "pointer "
    "drops\n";

// A made-up /proc and /sys.
class PortOwner : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "verbena-proc-XXXXXX").native();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    fs::create_directories(root_ / "proc/net");
    fs::create_directories(root_ / "sys/module");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const char* path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  static std::string udp_row(const std::string& address, unsigned uid, unsigned inode) {
    return "  77: " + address + " 00000000:0000 07 00000000:00000000 00:00000000 00000000 " + std::to_string(uid) +
           " 0 " + std::to_string(inode) + " 2 0000000000000000 0\n";
  }
  void add_udp_row(const std::string& address, unsigned uid, unsigned inode) {
    write("proc/net/udp", kHeading + udp_row(address, uid, inode));
  }
  void add_process(unsigned pid, const char* command, unsigned inode) {
    const std::string home = "proc/" + std::to_string(pid);
    write((home + "/comm").c_str(), std::string(command) + "\n");
    fs::create_directories(root_ / home / "fd");
    fs::create_symlink("socket:[" + std::to_string(inode) + "]", root_ / home / "fd/5");
  }
  std::string describe(const Gid& address = Gid::from_ipv4(127, 0, 0, 1), std::uint16_t port = 4791) {
    return describe_port_owner(address, port, (root_ / "proc").native(), (root_ / "sys").native());
  }

  fs::path root_;
};

TEST_F(PortOwner, counts_who_has_the_port_there) {
  const auto count = [this](const Gid& address, std::uint16_t port = 4791) {
    return count_bound(address, port, (root_ / "proc").native());
  };
  EXPECT_EQ(count(Gid::from_ipv4(127, 0, 0, 1)), 0u);
  add_udp_row("0100007F:12B7", 0, 4242);
  EXPECT_EQ(count(Gid::from_ipv4(127, 0, 0, 1)), 1u);
  EXPECT_EQ(count(Gid::from_ipv4(127, 0, 0, 2)), 0u);
  EXPECT_EQ(count(Gid::from_ipv4(127, 0, 0, 1), 4792), 0u);
  add_udp_row("00000000:12B7", 0, 4242);
  EXPECT_EQ(count(Gid::from_ipv4(127, 0, 0, 2)), 1u);
}

// As the kernel does where sockets come and go while its table is read.
TEST_F(PortOwner, counts_one_that_is_shown_again_once) {
  const std::string first = udp_row("0100007F:12B7", 0, 4242);
  write("proc/net/udp", kHeading + first + udp_row("0200007F:12B7", 0, 4243) + first);
  EXPECT_EQ(count_bound(Gid::from_ipv4(127, 0, 0, 1), 4791, (root_ / "proc").native()), 1u);
  write("proc/net/udp", kHeading + first + udp_row("0100007F:12B7", 0, 4244));
  EXPECT_EQ(count_bound(Gid::from_ipv4(127, 0, 0, 1), 4791, (root_ / "proc").native()), 2u);
}

TEST_F(PortOwner, of_every_ipv4_address_leaves_the_ipv6_ones) {
  add_udp_row("00000000:12B7", 0, 4242);
  EXPECT_EQ(count_bound(*Gid::parse("::1"), 4791, (root_ / "proc").native()), 0u);
  EXPECT_EQ(count_bound(*Gid::parse("127.0.0.1"), 4791, (root_ / "proc").native()), 1u);
}

TEST_F(PortOwner, names_the_process_and_its_user) {
  add_udp_row("0100007F:12B7", 0, 4242);
  add_process(1234, "server", 4242);
  const std::string text = describe();
  EXPECT_THAT(text, HasSubstr("UDP port 4791 on 127.0.0.1"));
  EXPECT_THAT(text, HasSubstr("process 1234 (server) of user root"));
}

TEST_F(PortOwner, cleans_the_name_a_process_gave_itself) {
  add_udp_row("0100007F:12B7", 0, 4242);
  add_process(1234, "x\xff\xfe\x1b[2J\n", 4242);
  EXPECT_THAT(describe(), HasSubstr("process 1234 (x???[2J?) of"));
}

TEST_F(PortOwner, names_the_user_when_the_process_cannot_be_seen) {
  add_udp_row("0100007F:12B7", 987'654, 4242);
  EXPECT_THAT(describe(), HasSubstr("user uid 987654 whose descriptors we may not read"));
}

TEST_F(PortOwner, says_when_the_owner_holds_every_address) {
  add_udp_row("00000000:12B7", 0, 4242);
  add_process(1234, "server", 4242);
  EXPECT_THAT(describe(), HasSubstr("bound to every address"));
}

TEST_F(PortOwner, ignores_other_ports_and_other_addresses) {
  add_udp_row("0200007F:12B7", 0, 4242);
  add_process(1234, "server", 4242);
  EXPECT_THAT(describe(), Not(HasSubstr("server")));
  EXPECT_THAT(describe(Gid::from_ipv4(127, 0, 0, 2), 4792), Not(HasSubstr("server")));
  EXPECT_THAT(describe(Gid::from_ipv4(127, 0, 0, 2)), HasSubstr("server"));
}

TEST_F(PortOwner, names_soft_roce_for_a_socket_nobody_owns_when_it_is_loaded) {
  fs::create_directories(root_ / "sys/module/rdma_rxe");
  write("sys/class/infiniband/rxe0/parent", "eth0\n");
  for (const bool listed : {false, true}) {
    if (listed) add_udp_row("00000000:12B7", 0, 4242);
    const std::string text = describe();
    EXPECT_THAT(text, HasSubstr("Soft-RoCE (rxe)"));
    EXPECT_THAT(text, HasSubstr("rdma link delete"));
    EXPECT_THAT(text, HasSubstr("rxe0"));
  }
}

TEST_F(PortOwner, finds_soft_roce_in_the_list_of_modules) {
  write("proc/modules", "ib_core 1 2 rdma_rxe, Live 0x0\nrdma_rxe 1 0 - Live 0x0\n");
  EXPECT_THAT(describe(), HasSubstr("Soft-RoCE (rxe)"));
}

TEST_F(PortOwner, does_not_blame_soft_roce_for_a_process_or_another_port) {
  fs::create_directories(root_ / "sys/module/rdma_rxe");
  EXPECT_THAT(describe(Gid::from_ipv4(127, 0, 0, 1), 4792), Not(HasSubstr("rxe")));
  add_udp_row("00000000:12B7", 0, 4242);
  add_process(1234, "server", 4242);
  EXPECT_THAT(describe(), Not(HasSubstr("rxe")));
}

TEST_F(PortOwner, says_so_when_nobody_can_be_seen) {
  EXPECT_THAT(describe(), HasSubstr("nobody we can see"));
}

TEST(UdpTable, reads_ipv4_and_ipv6_rows_and_leaves_out_what_is_no_row) {
  const auto rows = parse_udp_table(
      std::string(kHeading) +
      "  1: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 77 2 0 0\n"
      "  2: 00000000000000000000000001000000:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 "
      "00:00000000 00000000     0        0 78 2 0 0\n"
      "  3: 0100007G:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 77 2 0 0\n"
      "  4: 0100007F\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].address, Gid::from_ipv4(127, 0, 0, 1));
  EXPECT_EQ(rows[0].port, 4791);
  EXPECT_EQ(rows[0].uid, 1000u);
  EXPECT_EQ(rows[0].inode, 77u);
  EXPECT_EQ(rows[1].address.to_string(), "::1");
  EXPECT_FALSE(rows[1].is_wildcard());
}

}  // namespace
}  // namespace verbena::soft::udp
