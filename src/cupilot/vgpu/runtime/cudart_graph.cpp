// CUDA graphs: work is kept as functions, and done in an order that respects the dependencies when it is launched.
//
// Covered: capture of streams (kernels, copies, fills, host functions; forks and joins through events), graphs built
// from kernel, copy, fill, host, child and empty nodes, instantiation, launch, clone, whole-graph update, new
// parameters for kernel nodes. Memory nodes, event nodes, conditional nodes and the rest are not.
#include <algorithm>

#include "cudart.h"

struct Node {
    cudaGraphNodeType type;
    std::function<cudaError_t()> work;
    std::vector<Node*> after;
    cudaKernelNodeParams kernel{};
};
struct Graph {
    std::vector<Node*> nodes;
    u64 id = 0;
    Stream* origin = nullptr;
};

namespace {

struct Step { Node* node; cudaGraphNodeType type; std::function<cudaError_t()> work; };
struct Executable { std::vector<Step> steps; };
using Work = std::function<cudaError_t()>;

Node* add(Graph* g, cudaGraphNodeType type, Work work, const cudaGraphNode_t* after, size_t count) {
    auto* n = new Node{type, std::move(work), {}, {}};
    for (size_t i = 0; i < count; i++) n->after.push_back((Node*)after[i]);
    g->nodes.push_back(n);
    return n;
}

void visit(Node* n, std::set<Node*>& seen, std::vector<Step>& out) {
    if (!seen.insert(n).second) return;
    for (Node* before : n->after) visit(before, seen, out);
    out.push_back({n, n->type, n->work});
}

std::vector<Step> steps_of(Graph* g) {
    std::set<Node*> seen;
    std::vector<Step> out;
    for (Node* n : g->nodes) visit(n, seen, out);
    return out;
}

cudaError_t run_steps(const std::vector<Step>& steps) {
    for (const Step& step : steps)
        if (step.work)
            if (cudaError_t error = step.work()) return error;
    return cudaSuccess;
}

// A kernel launch with the arguments as they are now; null when the kernel is not known.
Work kernel_work(const cudaKernelNodeParams& p) {
    Registered* r = registered(p.func);
    if (!r || p.extra) return nullptr;
    KernelInfo* k = kernel_of(r);
    std::vector<std::vector<u8>> kept;
    for (size_t i = 0; i < k->param_sizes.size(); i++)
        kept.emplace_back((u8*)p.kernelParams[i], (u8*)p.kernelParams[i] + k->param_sizes[i]);
    LaunchShape shape{p.gridDim, p.blockDim, p.sharedMemBytes};
    return [=]() mutable {
        std::vector<void*> pointers;
        for (auto& one : kept) pointers.push_back(one.data());
        return launch(r, shape, pointers.data());
    };
}

Work fill_work(const cudaMemsetParams& p) {
    return [=] {
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

}  // namespace

cudaError_t submit(cudaStream_t stream, cudaGraphNodeType type, const Work& work) {
    REQUIRE(known_stream(stream), cudaErrorInvalidResourceHandle);
    if (!capturing(stream)) return work();
    auto* s = (Stream*)stream;
    Node* n = add(s->capture, type, work, (const cudaGraphNode_t*)s->tail.data(), s->tail.size());
    s->tail = {n};
    return cudaSuccess;
}

extern "C" {

// --- capture ----------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    ENTER;
    REQUIRE(known_stream(stream), cudaErrorInvalidResourceHandle);
    REQUIRE((u64)stream > 2, cudaErrorStreamCaptureUnsupported);
    auto* s = (Stream*)stream;
    REQUIRE(!s->capture, cudaErrorIllegalState);
    s->capture = new Graph;
    s->capture->id = ++runtime().captures, s->capture->origin = s;
    s->tail.clear();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    ENTER;
    REQUIRE(known_stream(stream), cudaErrorInvalidResourceHandle);
    REQUIRE(graph && capturing(stream), cudaErrorIllegalState);
    auto* s = (Stream*)stream;
    Graph* g = s->capture;
    REQUIRE(g->origin == s, cudaErrorStreamCaptureUnmatched);
    // every other stream's work must have been joined
    std::set<Node*> reached;
    std::vector<Step> unused;
    for (Node* n : s->tail) visit(n, reached, unused);
    for (Stream* other : runtime().streams)
        if (other->capture == g) other->capture = nullptr, other->tail.clear();
    for (Event* e : runtime().events)
        if (e->capture == g) e->capture = nullptr, e->tail.clear();
    *graph = nullptr;
    REQUIRE(reached.size() == g->nodes.size(), cudaErrorStreamCaptureUnjoined);
    *graph = (cudaGraph_t)g;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    ENTER;
    REQUIRE(status && known_stream(stream), cudaErrorInvalidValue);
    *status = capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* count) {
    if (cudaError_t error = cudaStreamIsCapturing(stream, status)) return error;
    auto* s = capturing(stream) ? (Stream*)stream : nullptr;
    if (id) *id = s ? s->capture->id : 0;
    if (graph) *graph = s ? (cudaGraph_t)s->capture : nullptr;
    if (nodes) *nodes = s ? (const cudaGraphNode_t*)s->tail.data() : nullptr;
    if (edges) *edges = nullptr;
    if (count) *count = s ? s->tail.size() : 0;
    return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

// --- graphs -----------------------------------------------------------------------------------

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
    ENTER;
    *graph = (cudaGraph_t) new Graph;
    return cudaSuccess;
}
// Nodes stay: an executable graph and the program may still name them.
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    ENTER;
    delete (Graph*)graph;
    return cudaSuccess;
}
cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
    ENTER;
    auto* g = new Graph;
    std::map<Node*, Node*> copies{{nullptr, nullptr}};
    for (Node* n : ((Graph*)graph)->nodes) g->nodes.push_back(copies[n] = new Node(*n));
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
    Node* n = add((Graph*)graph, cudaGraphNodeTypeKernel, work, after, count);
    n->kernel = *p;
    *node = (cudaGraphNode_t)n;
    return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* p) {
    *p = ((Node*)node)->kernel;
    return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* p) {
    ENTER;
    Work work = kernel_work(*p);
    REQUIRE(work, cudaErrorInvalidDeviceFunction);
    ((Node*)node)->kernel = *p, ((Node*)node)->work = work;
    return cudaSuccess;
}
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
                                   const cudaMemcpy3DParms* p) {
    ENTER;
    cudaMemcpy3DParms kept = *p;
    *node = (cudaGraphNode_t)add((Graph*)graph, cudaGraphNodeTypeMemcpy, [=] { return copy_volume(kept); }, after,
             count);
    return cudaSuccess;
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                     size_t count,
                                     void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    ENTER;
    Work work = [=] { return copy(to, from, bytes, kind); };
    *node = (cudaGraphNode_t)add((Graph*)graph, cudaGraphNodeTypeMemcpy, work, after, count);
    return cudaSuccess;
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
                                   const cudaMemsetParams* p) {
    ENTER;
    *node = (cudaGraphNode_t)add((Graph*)graph, cudaGraphNodeTypeMemset, fill_work(*p), after, count);
    return cudaSuccess;
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, size_t count,
                                 const cudaHostNodeParams* p) {
    ENTER;
    cudaHostNodeParams kept = *p;
    Work work = [=] { return kept.fn(kept.userData), cudaSuccess; };
    *node = (cudaGraphNode_t)add((Graph*)graph, cudaGraphNodeTypeHost, work, after, count);
    return cudaSuccess;
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                  size_t count) {
    ENTER;
    *node = (cudaGraphNode_t)add((Graph*)graph, cudaGraphNodeTypeEmpty, nullptr, after, count);
    return cudaSuccess;
}
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                       size_t count,
                                       cudaGraph_t child) {
    ENTER;
    std::vector<Step> steps = steps_of((Graph*)child);
    Work work = [=] { return run_steps(steps); };
    *node = (cudaGraphNode_t)add((Graph*)graph, cudaGraphNodeTypeGraph, work, after, count);
    return cudaSuccess;
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData*, size_t count) {
    ENTER;
    for (size_t i = 0; i < count; i++) ((Node*)to[i])->after.push_back((Node*)from[i]);
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    ENTER;
    auto& all = ((Graph*)graph)->nodes;
    for (size_t i = 0; nodes && i < std::min(*count, all.size()); i++) nodes[i] = (cudaGraphNode_t)all[i];
    *count = all.size();
    return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
    *type = ((Node*)node)->type;
    return cudaSuccess;
}

// --- executable graphs ------------------------------------------------------------------------

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    ENTER;
    REQUIRE(executable && graph, cudaErrorInvalidValue);
    *executable = (cudaGraphExec_t) new Executable{steps_of((Graph*)graph)};
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiate(executable, graph, flags);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    ENTER;
    delete (Executable*)executable;
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    ENTER;
    REQUIRE(executable, cudaErrorInvalidValue);
    std::vector<Step> steps = ((Executable*)executable)->steps;
    return submit(stream, cudaGraphNodeTypeGraph, [=] { return run_steps(steps); });
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* p) {
    ENTER;
    for (Step& step : ((Executable*)executable)->steps)
        if (step.node == (Node*)node) {
            step.work = kernel_work(*p);
            return step.work ? cudaSuccess : fail(cudaErrorInvalidDeviceFunction);
        }
    return fail(cudaErrorInvalidValue);
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
    ENTER;
    auto& steps = ((Executable*)executable)->steps;
    std::vector<Step> now = steps_of((Graph*)graph);
    bool same = now.size() == steps.size();
    for (size_t i = 0; same && i < now.size(); i++) same = now[i].type == steps[i].type;
    if (info) *info = {}, info->result = same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    REQUIRE(same, cudaErrorGraphExecUpdateFailure);
    // the program names nodes of the graph it was instantiated from
    for (size_t i = 0; i < now.size(); i++) steps[i].work = now[i].work;
    return cudaSuccess;
}

}  // extern "C"
