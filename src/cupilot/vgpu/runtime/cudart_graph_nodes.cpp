// The nodes of CUDA graphs: adding them and asking about them.
//
// Kernel, copy, fill, host, child, empty, event and memory nodes. Memory nodes own one buffer from the moment they are
// added. Conditional nodes, semaphores and node attributes are not covered.
#include <algorithm>

#include "cudart_graph.h"
#include "host_side.h"

// A kernel launch with the arguments as they are now; null when the kernel is not known.
Work kernel_work(const cudaKernelNodeParams& p) {
    Registered* r = registered(p.func);
    if (!r || p.extra) return nullptr;
    KernelInfo* k = kernel_of(r);
    std::vector<std::vector<u8>> kept;
    void** given = host_apart() ? host_apart()->arguments(p.kernelParams) : p.kernelParams;
    for (size_t i = 0; i < k->param_sizes.size(); i++)
        kept.emplace_back((u8*)given[i], (u8*)given[i] + k->param_sizes[i]);
    LaunchShape shape{p.gridDim, p.blockDim, p.sharedMemBytes};
    return [=]() mutable {
        std::vector<void*> pointers;
        for (auto& one : kept) pointers.push_back(one.data());
        return launch(r, shape, pointers.data());
    };
}

Work fill_work(const cudaMemsetParams& p) {
    return [=] {
        REQUIRE(p.elementSize == 1 || p.elementSize == 2 || p.elementSize == 4, cudaErrorInvalidValue);
        REQUIRE(p.width <= SIZE_MAX / 4, cudaErrorInvalidValue);
        if (!p.width) return cudaSuccess;
        REQUIRE(p.height <= 1 || p.width * p.elementSize <= p.pitch, cudaErrorInvalidPitchValue);
        Opened opened;
        for (size_t row = 0; row < std::max<size_t>(p.height, 1); row++) {
            char* start = (char*)p.dst + row * p.pitch;
            cudaError_t error = fill(start, (int)(p.value & 255), p.width * p.elementSize);
            if (error != cudaSuccess) return error;
            for (size_t i = 0; p.elementSize > 1 && i < p.width; i++)
                std::copy_n((const char*)&p.value, p.elementSize, start + i * p.elementSize);
        }
        return cudaSuccess;
    };
}
Work copy_work(const cudaMemcpy3DParms& p) {
    return [=] { return copy_volume(p); };
}
Work host_work(const cudaHostNodeParams& p) {
    return [=] { return note_operation("host-function", 0), run_on_host(p.fn, p.userData), cudaSuccess; };
}

namespace {

// As CUDA does it: without a place to put them the number is given, else at most that many are.
cudaError_t give(const std::vector<Node*>& found, cudaGraphNode_t* out, size_t* count) {
    REQUIRE(count, cudaErrorInvalidValue);
    for (size_t i = 0; out && i < *count; i++) out[i] = i < found.size() ? (cudaGraphNode_t)found[i] : nullptr;
    *count = out ? std::min(*count, found.size()) : found.size();
    return cudaSuccess;
}

}  // namespace

extern "C" {

// --- graphs -----------------------------------------------------------------------------------

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
    ENTER;
    *graph = (cudaGraph_t) new Graph;
    return cudaSuccess;
}
// Nodes stay: an executable graph and the program may still name them.
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    ENTER;
    for (Stream* s : runtime().streams) REQUIRE(s->capture != (Graph*)graph, cudaErrorIllegalState);
    for (Event* e : runtime().events) REQUIRE(e->capture != (Graph*)graph, cudaErrorIllegalState);
    delete (Graph*)graph;
    return cudaSuccess;
}
cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
    ENTER;
    auto* g = new Graph;
    std::map<Node*, Node*> copies{{nullptr, nullptr}};
    for (Node* n : ((Graph*)graph)->nodes) g->nodes.push_back(copies[n] = new Node(*n));
    for (auto& [from, to] : copies)
        if (to) to->origin = from, to->owner = g;
    for (Node* n : g->nodes)
        for (Node*& before : n->after) before = copies[before];
    *clone = (cudaGraph_t)g;
    return cudaSuccess;
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
                                   const cudaKernelNodeParams* p) {
    ENTER;
    Work work = kernel_work(*p);
    REQUIRE(work, cudaErrorInvalidDeviceFunction);
    Node* n = add_node((Graph*)graph, cudaGraphNodeTypeKernel, work, after, count);
    n->kernel = *p;
    *node = (cudaGraphNode_t)n;
    return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* p) {
    *p = ((Node*)node)->kernel;
    return cudaSuccess;
}
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
                                   const cudaMemcpy3DParms* p) {
    ENTER;
    Node* n = add_node((Graph*)graph, cudaGraphNodeTypeMemcpy, copy_work(*p), after, count);
    n->copy = *p;
    *node = (cudaGraphNode_t)n;
    return cudaSuccess;
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                     size_t count,
                                     void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    ENTER;
    Work work = [=] { return copy(to, from, bytes, kind); };
    *node = (cudaGraphNode_t)add_node((Graph*)graph, cudaGraphNodeTypeMemcpy, work, after, count);
    return cudaSuccess;
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
                                   const cudaMemsetParams* p) {
    ENTER;
    Node* n = add_node((Graph*)graph, cudaGraphNodeTypeMemset, fill_work(*p), after, count);
    n->fill = *p;
    *node = (cudaGraphNode_t)n;
    return cudaSuccess;
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
                                 const cudaHostNodeParams* p) {
    ENTER;
    Node* n = add_node((Graph*)graph, cudaGraphNodeTypeHost, host_work(*p), after, count);
    n->host = *p;
    *node = (cudaGraphNode_t)n;
    return cudaSuccess;
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                  size_t count) {
    ENTER;
    *node = (cudaGraphNode_t)add_node((Graph*)graph, cudaGraphNodeTypeEmpty, nullptr, after, count);
    return cudaSuccess;
}
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                       size_t count,
                                       cudaGraph_t child) {
    ENTER;
    std::vector<Step> steps = steps_of((Graph*)child);
    Work work = [=] { return run_steps(steps); };
    Node* n = add_node((Graph*)graph, cudaGraphNodeTypeGraph, work, after, count);
    n->child = (Graph*)child;
    *node = (cudaGraphNode_t)n;
    return cudaSuccess;
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData*, size_t count) {
    ENTER;
    for (size_t i = 0; i < count; i++) ((Node*)to[i])->after.push_back((Node*)from[i]);
    return cudaSuccess;
}
cudaError_t cudaGraphRemoveDependencies(cudaGraph_t, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                        const cudaGraphEdgeData*, size_t count) {
    ENTER;
    for (size_t i = 0; i < count; i++) {
        auto& after = ((Node*)to[i])->after;
        after.erase(std::remove(after.begin(), after.end(), (Node*)from[i]), after.end());
    }
    return cudaSuccess;
}
cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                           size_t count, const void* symbol, const void* from, size_t bytes,
                                           size_t offset, cudaMemcpyKind kind) {
    ENTER;
    void* address = nullptr;
    if (cudaError_t error = cudaGetSymbolAddress(&address, symbol)) return error;
    return cudaGraphAddMemcpyNode1D(node, graph, after, count, (char*)address + offset, from, bytes, kind);
}
cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                             size_t count, void* to, const void* symbol, size_t bytes, size_t offset,
                                             cudaMemcpyKind kind) {
    ENTER;
    void* address = nullptr;
    if (cudaError_t error = cudaGetSymbolAddress(&address, symbol)) return error;
    return cudaGraphAddMemcpyNode1D(node, graph, after, count, to, (char*)address + offset, bytes, kind);
}
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                        size_t count, cudaEvent_t event) {
    ENTER;
    Work work = [=] { return cudaEventRecord(event, runtime().running); };
    Node* n = add_node((Graph*)graph, cudaGraphNodeTypeEventRecord, work, after, count);
    n->event = event;
    *node = (cudaGraphNode_t)n;
    return cudaSuccess;
}
cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                      size_t count, cudaEvent_t event) {
    ENTER;
    Work work = [=] { return cudaStreamWaitEvent(runtime().running, event, 0); };
    Node* n = add_node((Graph*)graph, cudaGraphNodeTypeWaitEvent, work, after, count);
    n->event = event;
    *node = (cudaGraphNode_t)n;
    return cudaSuccess;
}
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                     size_t count, cudaMemAllocNodeParams* p) {
    ENTER;
    if (cudaError_t error = cudaMalloc(&p->dptr, p->bytesize)) return error;
    Node* n = add_node((Graph*)graph, cudaGraphNodeTypeMemAlloc, nullptr, after, count);
    n->allocation = *p;
    *node = (cudaGraphNode_t)n;
    return cudaSuccess;
}
cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                    size_t count, void* pointer) {
    ENTER;
    Node* n = add_node((Graph*)graph, cudaGraphNodeTypeMemFree, nullptr, after, count);
    n->allocation.dptr = pointer;
    *node = (cudaGraphNode_t)n;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
    ENTER;
    auto* gone = (Node*)node;
    REQUIRE(gone->owner, cudaErrorInvalidValue);
    auto& all = gone->owner->nodes;
    all.erase(std::remove(all.begin(), all.end(), gone), all.end());
    for (Node* n : all) n->after.erase(std::remove(n->after.begin(), n->after.end(), gone), n->after.end());
    gone->owner = nullptr;
    return cudaSuccess;
}

// --- questions ----------------------------------------------------------------------------------

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    ENTER;
    return give(((Graph*)graph)->nodes, nodes, count);
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    ENTER;
    std::vector<Node*> found;
    for (Node* n : ((Graph*)graph)->nodes)
        if (n->after.empty()) found.push_back(n);
    return give(found, nodes, count);
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data,
                              size_t* count) {
    ENTER;
    REQUIRE(count && !from == !to, cudaErrorInvalidValue);
    std::vector<Node*> starts, ends;
    for (Node* n : ((Graph*)graph)->nodes)
        for (Node* before : n->after) starts.push_back(before), ends.push_back(n);
    for (size_t i = 0; data && i < *count; i++) data[i] = cudaGraphEdgeData{};
    size_t room = *count;
    give(starts, from, count);
    return give(ends, to, &(*count = room));
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* data,
                                         size_t* count) {
    ENTER;
    for (size_t i = 0; data && i < *count; i++) data[i] = cudaGraphEdgeData{};
    return give(((Node*)node)->after, nodes, count);
}
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* data,
                                           size_t* count) {
    ENTER;
    std::vector<Node*> found;
    REQUIRE(((Node*)node)->owner, cudaErrorInvalidValue);
    for (Node* n : ((Node*)node)->owner->nodes)
        if (std::count(n->after.begin(), n->after.end(), (Node*)node)) found.push_back(n);
    for (size_t i = 0; data && i < *count; i++) data[i] = cudaGraphEdgeData{};
    return give(found, nodes, count);
}
cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* node, cudaGraphNode_t original, cudaGraph_t clone) {
    ENTER;
    for (Node* n : ((Graph*)clone)->nodes)
        if (n->origin == (Node*)original) return *node = (cudaGraphNode_t)n, cudaSuccess;
    return fail(cudaErrorInvalidValue);
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
    *type = ((Node*)node)->type;
    return cudaSuccess;
}
cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* p) {
    return *p = ((Node*)node)->copy, cudaSuccess;
}
cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* p) {
    return *p = ((Node*)node)->fill, cudaSuccess;
}
cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams* p) {
    return *p = ((Node*)node)->host, cudaSuccess;
}
cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* graph) {
    return *graph = (cudaGraph_t)((Node*)node)->child, cudaSuccess;
}
cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
    return *event = ((Node*)node)->event, cudaSuccess;
}
cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
    return *event = ((Node*)node)->event, cudaSuccess;
}
cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams* p) {
    return *p = ((Node*)node)->allocation, cudaSuccess;
}
cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* pointer) {
    return *(void**)pointer = ((Node*)node)->allocation.dptr, cudaSuccess;
}

// --- memory that graphs hold: not kept apart --------------------------------------------------------

cudaError_t cudaDeviceGraphMemTrim(int) { return cudaSuccess; }
cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* value) {
    return *(u64*)value = 0, cudaSuccess;
}
cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) { return cudaSuccess; }

}  // extern "C"
