// The host process's end of the connection to the worker.
#pragma once

#include "../runtime/wire.h"

namespace channel {

using namespace wire;

void open(int descriptor);
// Make a request and wait for the answer; what the worker asks for meanwhile is done.
std::string request(u32 number, const Writer& arguments);
// Wait for the next command of the worker.
Head next_command(std::string& data);
void done(const Writer& result);
// From a signal handler: the address of an access that failed.
void tell_fault(u64 address);

// A request whose answer is an error number alone.
cudaError_t ask(u32 number, const Writer& arguments);

}  // namespace channel
