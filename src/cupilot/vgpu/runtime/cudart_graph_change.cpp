// Changes to nodes of CUDA graphs, in a graph and in an executable one.
#include "cudart_graph.h"

namespace {

// A step of an executable graph is named by the node that it was made from.
Step* step_of(cudaGraphExec_t executable, cudaGraphNode_t node) {
    for (Step& step : ((Executable*)executable)->steps)
        if (step.node == (Node*)node) return &step;
    return nullptr;
}

cudaError_t replace(cudaGraphExec_t executable, cudaGraphNode_t node, Work work) {
    REQUIRE(work, cudaErrorInvalidDeviceFunction);
    Step* step = step_of(executable, node);
    REQUIRE(step, cudaErrorInvalidValue);
    step->work = std::move(work);
    return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* p) {
    ENTER;
    Work work = kernel_work(*p);
    REQUIRE(work, cudaErrorInvalidDeviceFunction);
    ((Node*)node)->kernel = *p, ((Node*)node)->work = work;
    return cudaSuccess;
}
cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* p) {
    ENTER;
    ((Node*)node)->copy = *p, ((Node*)node)->work = copy_work(*p);
    return cudaSuccess;
}
cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* to, const void* from, size_t bytes,
                                           cudaMemcpyKind kind) {
    ENTER;
    ((Node*)node)->work = [=] { return copy(to, from, bytes, kind); };
    return cudaSuccess;
}
cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* p) {
    ENTER;
    ((Node*)node)->fill = *p, ((Node*)node)->work = fill_work(*p);
    return cudaSuccess;
}
cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* p) {
    ENTER;
    ((Node*)node)->host = *p, ((Node*)node)->work = host_work(*p);
    return cudaSuccess;
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* p) {
    ENTER;
    return replace(executable, node, kernel_work(*p));
}
cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* p) {
    ENTER;
    return replace(executable, node, copy_work(*p));
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t executable, cudaGraphNode_t node, void* to,
                                               const void* from, size_t bytes, cudaMemcpyKind kind) {
    ENTER;
    return replace(executable, node, [=] { return copy(to, from, bytes, kind); });
}
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaMemsetParams* p) {
    ENTER;
    return replace(executable, node, fill_work(*p));
}
cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                           const cudaHostNodeParams* p) {
    ENTER;
    return replace(executable, node, host_work(*p));
}
cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node, cudaGraph_t child) {
    ENTER;
    std::vector<Step> steps = steps_of((Graph*)child);
    return replace(executable, node, [=] { return run_steps(steps); });
}
cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t executable, cudaGraphNode_t node, cudaEvent_t event) {
    ENTER;
    return replace(executable, node, [=] { return cudaEventRecord(event, runtime().running); });
}
cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node, unsigned enabled) {
    ENTER;
    Step* step = step_of(executable, node);
    REQUIRE(step, cudaErrorInvalidValue);
    step->enabled = enabled != 0;
    return cudaSuccess;
}
cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t executable, cudaGraphNode_t node, unsigned* enabled) {
    ENTER;
    Step* step = step_of(executable, node);
    REQUIRE(step && enabled, cudaErrorInvalidValue);
    *enabled = step->enabled;
    return cudaSuccess;
}

}  // extern "C"
