// The codes of 8 bits that a graph's vectors are rounded to.

#pragma once

#include "_quantize.h"

namespace hrag {

// Codes are from -MAX_CODE to MAX_CODE. A row of codes is padded with zeros to whole cache lines.
enum { MAX_CODE = 127, CACHE_LINE = 64 };

}  // namespace hrag
