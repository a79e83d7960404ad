// CUDA graphs: work is kept as functions, and done in an order that respects the dependencies when it is launched.
//
// Here: capture of streams (kernels, copies, fills, host functions, allocations; forks and joins through events),
// instantiation, launch and whole-graph update. What nodes are made of is in cudart_graph_nodes.cpp.
#include "cudart_graph.h"

// Without recursion: a chain may be as long as a program likes.
void visit(Node* last, std::set<Node*>& seen, std::vector<Step>& out) {
    struct Place { Node* node; size_t next; };
    std::vector<Place> path;
    if (seen.insert(last).second) path.push_back({last, 0});
    while (!path.empty()) {
        auto& [n, next] = path.back();
        if (next < n->after.size()) {
            Node* before = n->after[next++];
            if (seen.insert(before).second) path.push_back({before, 0});
        } else {
            out.push_back({n, n->type, n->work});
            path.pop_back();
        }
    }
}

std::vector<Step> steps_of(Graph* g) {
    std::set<Node*> seen;
    std::vector<Step> out;
    for (Node* n : g->nodes) visit(n, seen, out);
    return out;
}

cudaError_t run_steps(const std::vector<Step>& steps) {
    for (const Step& step : steps)
        if (step.work && step.enabled)
            if (cudaError_t error = step.work()) return error;
    return cudaSuccess;
}

Node* add_node(Graph* g, cudaGraphNodeType type, Work work, const cudaGraphNode_t* after, size_t count) {
    auto* n = new Node(type, std::move(work));
    for (size_t i = 0; i < count; i++) n->after.push_back((Node*)after[i]);
    n->owner = g;
    g->nodes.push_back(n);
    return n;
}

static const char* name_of(cudaGraphNodeType type) {
    return type == cudaGraphNodeTypeMemcpy ? "a copy"
           : type == cudaGraphNodeTypeMemset ? "a fill"
           : type == cudaGraphNodeTypeHost   ? "a host function"
           : type == cudaGraphNodeTypeGraph  ? "a graph"
                                             : "memory management";
}

static cudaError_t do_now(cudaStream_t stream, cudaGraphNodeType type, const Work& work) {
    Runtime& r = runtime();
    if (cudaError_t error = begin_work(stream, name_of(type))) return error;
    cudaStream_t before = r.running;
    r.running = stream;
    cudaError_t error = work();
    r.running = before;
    return error;
}

cudaError_t submit(cudaStream_t stream, cudaGraphNodeType type, const Work& work) {
    REQUIRE(known_stream(stream), cudaErrorInvalidResourceHandle);
    if (!capturing(stream)) return do_now(stream, type, work);
    auto* s = (Stream*)stream;
    Node* n = add_node(s->capture, type, work, (const cudaGraphNode_t*)s->tail.data(), s->tail.size());
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

// --- executable graphs ------------------------------------------------------------------------

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    ENTER;
    REQUIRE(executable && graph, cudaErrorInvalidValue);
    *executable = (cudaGraphExec_t) new Executable(steps_of((Graph*)graph));
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiate(executable, graph, flags);
}
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* executable, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* p) {
    cudaError_t error = cudaGraphInstantiate(executable, graph, p->flags);
    p->errNode_out = nullptr, p->result_out = error ? cudaGraphInstantiateError : cudaGraphInstantiateSuccess;
    return error;
}
cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t, unsigned long long* flags) { return *flags = 0, cudaSuccess; }
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
