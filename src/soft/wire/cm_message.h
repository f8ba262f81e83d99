// SPDX-License-Identifier: Apache-2.0
// Any CM message with its MAD header, and the line that tells it to people.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <variant>

#include "soft/wire/cm_drep.h"
#include "soft/wire/cm_dreq.h"
#include "soft/wire/cm_mra.h"
#include "soft/wire/cm_rej.h"
#include "soft/wire/cm_rep.h"
#include "soft/wire/cm_req.h"
#include "soft/wire/cm_rtu.h"
#include "soft/wire/cm_sidr.h"
#include "soft/wire/cma_header.h"
#include "soft/wire/mad.h"

namespace verbena::wire {

// A message of CM that is not read further: LAP, APR, or an attribute nobody knows.
struct CmUnknown {
  bool operator==(const CmUnknown&) const = default;
};

using CmMessage =
    std::variant<CmUnknown, CmReq, CmMra, CmRej, CmRep, CmRtu, CmDreq, CmDrep, CmSidrReq, CmSidrRep>;

// parse_mad(), and the message its attribute names. CmUnknown is not a failure.
DropReason parse_cm(std::span<const std::byte> payload, MadHeader& header, CmMessage& message);

// Header and message. `header.attribute` is written as the message's own.
template <class Message>
void emit_mad(MadHeader header, const Message& message, std::span<std::byte, kMadBytes> to) {
  header.attribute = Message::kAttribute;
  emit_mad_header(header, to.first<kMadHeaderBytes>());
  emit(message, cm_part(to));
}
// The same for what parse_cm() returned; CmUnknown is emitted as zeros.
void emit_mad(const MadHeader& header, const CmMessage& message, std::span<std::byte, kMadBytes> to);

// One line for people: "RTU tid 0x1f id 0x00000012 peer 0x00000044".
std::string to_string(const MadHeader& header, const CmMessage& message);

}  // namespace verbena::wire
