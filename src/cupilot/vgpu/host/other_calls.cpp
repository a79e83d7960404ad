// Calls that give lists or texts, and those that need no worker.
#include <cstdio>
#include <map>

#include "channel.h"

using namespace wire;

namespace {

std::string ask(Special what, const Writer& out) { return channel::request(what, out); }

cudaError_t failed(cudaError_t error) {
    Writer out;
    out.put(error);
    return channel::ask(FAILED, out);
}

void clear(cudaGraphEdgeData* edges, size_t count) {
    for (size_t i = 0; edges && i < count; i++) edges[i] = cudaGraphEdgeData{};
}

// Nodes of a graph or around a node: a number, and as many as there is room for.
cudaError_t list(NodeList what, const void* of, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges, size_t* count) {
    if (!count) return failed(cudaErrorInvalidValue);
    Writer out;
    out.put((u32)what), out.put(of), out.put((u8)(nodes != nullptr)), out.put((u64)*count);
    if (nodes) clear(edges, *count);
    std::string answer = ask(NODES, out);
    Reader in(answer.data(), answer.size());
    if (auto error = in.take<cudaError_t>()) return error;
    size_t room = *count;
    *count = in.take<u64>();
    for (size_t i = 0; nodes && i < room; i++) nodes[i] = i < *count ? in.take<cudaGraphNode_t>() : nullptr;
    return cudaSuccess;
}

// The last attributes are a number of bytes, the first ones a choice.
size_t bytes_of(cudaMemPoolAttr attribute) { return attribute <= cudaMemPoolReuseAllowInternalDependencies ? 4 : 8; }

}  // namespace

extern "C" {

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    return list(ALL_NODES, graph, nodes, nullptr, count);
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    return list(ROOT_NODES, graph, nodes, nullptr, count);
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* data,
                                         size_t* count) {
    return list(DEPENDENCIES, node, nodes, data, count);
}
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* data,
                                           size_t* count) {
    return list(DEPENDENTS, node, nodes, data, count);
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data,
                              size_t* count) {
    if (!count || !from != !to) return failed(cudaErrorInvalidValue);
    Writer out;
    out.put(graph), out.put((u8)(from != nullptr)), out.put((u64)*count);
    if (from) clear(data, *count);
    std::string answer = ask(EDGES, out);
    Reader in(answer.data(), answer.size());
    if (auto error = in.take<cudaError_t>()) return error;
    size_t room = *count;
    *count = in.take<u64>();
    for (cudaGraphNode_t* side : {from, to})
        for (size_t i = 0; side && i < room; i++) side[i] = i < *count ? in.take<cudaGraphNode_t>() : nullptr;
    return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* count) {
    if (!status) return failed(cudaErrorInvalidValue);
    Writer out;
    out.put(stream);
    std::string answer = ask(CAPTURE_INFO, out);
    Reader in(answer.data(), answer.size());
    if (auto error = in.take<cudaError_t>()) return error;
    static auto* kept = new std::vector<cudaGraphNode_t>;  // until the next question
    *status = in.take<cudaStreamCaptureStatus>();
    auto number = in.take<u64>();
    auto captured = in.take<cudaGraph_t>();
    kept->resize(in.take<u64>());
    for (cudaGraphNode_t& node : *kept) node = in.take<cudaGraphNode_t>();
    if (id) *id = number;
    if (graph) *graph = captured;
    if (nodes) *nodes = kept->empty() ? nullptr : kept->data();
    if (edges) *edges = nullptr;
    if (count) *count = kept->size();
    return cudaSuccess;
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
    if (!name) return failed(cudaErrorInvalidDeviceFunction);
    static auto* kept = new std::map<const void*, std::string>;
    Writer out;
    out.put(function);
    std::string answer = ask(FUNCTION_NAME, out);
    Reader in(answer.data(), answer.size());
    if (auto error = in.take<cudaError_t>()) return error;
    *name = ((*kept)[function] = in.text()).c_str();
    return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
    if (!value) return failed(cudaErrorInvalidValue);
    u64 given = 0;
    memcpy(&given, value, bytes_of(attribute));
    Writer out;
    out.put(attribute), out.put(given);
    return channel::ask(SET_POOL, out);
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void* value) {
    if (!value) return failed(cudaErrorInvalidValue);
    Writer out;
    out.put(attribute);
    std::string answer = ask(GET_POOL, out);
    Reader in(answer.data(), answer.size());
    if (auto error = in.take<cudaError_t>()) return error;
    u64 found = in.take<u64>();
    memcpy(value, &found, bytes_of(attribute));
    return cudaSuccess;
}
cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* pointer) {
    if (!pointer) return failed(cudaErrorInvalidValue);
    Writer out;
    out.put(node);
    std::string answer = ask(FREED_BY_NODE, out);
    Reader in(answer.data(), answer.size());
    if (auto error = in.take<cudaError_t>()) return error;
    *(void**)pointer = in.take<void*>();
    return cudaSuccess;
}

// --- answers that are always the same -------------------------------------------------------------

cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
    if (device) return failed(cudaErrorInvalidDevice);
    snprintf(text, (size_t)bytes, "0000:00:00.0");
    return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
    if (!device || !text || strcmp(text, "0000:00:00.0") != 0) return failed(cudaErrorInvalidValue);
    return *device = 0, cudaSuccess;
}
cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* p, int device) { return cudaGetDeviceProperties(p, device); }
cudaError_t cudaSetValidDevices(int*, int) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* value) {
    return *(u64*)value = 0, cudaSuccess;
}
cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) { return cudaSuccess; }
cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
    return {x, y, z, w, kind};
}
cudaError_t cudaProfilerStart() { return cudaSuccess; }
cudaError_t cudaProfilerStop() { return cudaSuccess; }

}  // extern "C"
