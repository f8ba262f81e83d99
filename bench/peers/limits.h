// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace peer {

void measure_memcpy();
void measure_line();  // cache-line ping-pong between threads and between processes, bare and with a payload
void measure_ring();  // two-copy stream through shared memory
void measure_vm();    // process_vm_readv and process_vm_writev
void measure_crc();
void measure_wake();     // waking a sleeper on the same and on the other CPU
void measure_syscall();  // the bare cost of system calls

}  // namespace peer
