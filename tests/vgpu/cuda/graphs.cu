// Graphs made node by node and by capture; asked about, changed and launched again.
#include "check.h"

__global__ void add(float *a, float v, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] += v;
}

__global__ void sum(const float *a, double *o, int n) {
    __shared__ double s[256];
    double t = 0;
    for (int i = threadIdx.x; i < n; i += 256) t += a[i];
    s[threadIdx.x] = t;
    __syncthreads();
    for (int d = 128; d; d >>= 1) {
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
        __syncthreads();
    }
    if (!threadIdx.x) *o = s[0];
}

static int calls = 0;

void CUDART_CB notice(void *d) {
    calls += *(double*)d > 0;
}

int main() {
    int n = 4096;
    float *h, *a;
    double *o, *r;
    CALL(cudaMallocHost(&h, n * 4));
    CALL(cudaMallocHost(&r, 8));
    CALL(cudaMalloc(&a, n * 4));
    CALL(cudaMalloc(&o, 8));
    for (int i = 0; i < n; i++) h[i] = 1;
    cudaGraph_t g;
    cudaGraphExec_t x;
    CALL(cudaGraphCreate(&g, 0));
    cudaGraphNode_t cp, k, s, back, hn, ms;
    cudaMemcpy3DParms m = {};
    m.srcPtr = make_cudaPitchedPtr(h, n * 4, n, 1);
    m.dstPtr = make_cudaPitchedPtr(a, n * 4, n, 1);
    m.extent = make_cudaExtent(n * 4, 1, 1);
    m.kind = cudaMemcpyHostToDevice;
    CALL(cudaGraphAddMemcpyNode(&cp, g, nullptr, 0, &m));
    cudaMemsetParams mp = {};
    mp.dst = o;
    mp.value = 0;
    mp.elementSize = 4;
    mp.width = 2;
    mp.height = 1;
    CALL(cudaGraphAddMemsetNode(&ms, g, nullptr, 0, &mp));
    float v = 2;
    void *ka[] = {&a, &v, &n};
    cudaKernelNodeParams kp = {};
    kp.func = (void*)add;
    kp.gridDim = dim3(16);
    kp.blockDim = dim3(256);
    kp.kernelParams = ka;
    CALL(cudaGraphAddKernelNode(&k, g, &cp, 1, &kp));
    void *sa[] = {&a, &o, &n};
    kp.func = (void*)sum;
    kp.gridDim = dim3(1);
    kp.kernelParams = sa;
    cudaGraphNode_t dep[] = {k, ms};
    CALL(cudaGraphAddKernelNode(&s, g, dep, 2, &kp));
    CALL(cudaGraphAddMemcpyNode1D(&back, g, &s, 1, r, o, 8, cudaMemcpyDeviceToHost));
    cudaHostNodeParams hp = {notice, r};
    CALL(cudaGraphAddHostNode(&hn, g, &back, 1, &hp));
    size_t nn = 0;
    CALL(cudaGraphGetNodes(g, nullptr, &nn));
    EXPECT(nn == 6);
    cudaGraphNode_t nodes[6];
    CALL(cudaGraphGetNodes(g, nodes, &nn));
    cudaGraphNodeType ty;
    CALL(cudaGraphNodeGetType(nodes[0], &ty));
    CALL(cudaGraphInstantiate(&x, g, nullptr, nullptr, 0));
    cudaGraph_t cl;
    CALL(cudaGraphClone(&cl, g));
    cudaStream_t st;
    CALL(cudaStreamCreate(&st));
    for (int i = 0; i < 3; i++) {
        CALL(cudaGraphLaunch(x, st));
    }
    CALL(cudaStreamSynchronize(st));
    EXPECT(*r == 3.0 * n && calls == 3);
    size_t ne = 0;
    CALL(cudaGraphGetRootNodes(g, nullptr, &ne));
    EXPECT(ne == 2);
    CALL(cudaGraphGetEdges(g, nullptr, nullptr, nullptr, &ne));
    EXPECT(ne == 5);
    v = 5;
    kp.func = (void*)add;
    kp.gridDim = dim3(16);
    kp.kernelParams = ka;
    CALL(cudaGraphExecKernelNodeSetParams(x, k, &kp));
    CALL(cudaGraphLaunch(x, st));
    CALL(cudaStreamSynchronize(st));
    EXPECT(*r == 6.0 * n);
    cudaGraph_t c;
    cudaGraphExec_t cx;
    cudaStream_t s2;
    CALL(cudaStreamCreate(&s2));
    cudaEvent_t e1, e2;
    CALL(cudaEventCreate(&e1));
    CALL(cudaEventCreate(&e2));
    CALL(cudaStreamBeginCapture(st, cudaStreamCaptureModeGlobal));
    CALL(cudaEventRecord(e1, st));
    CALL(cudaStreamWaitEvent(s2, e1));
    CALL(cudaMemcpyAsync(a, h, n * 4, cudaMemcpyDefault, st));
    CALL(cudaMemsetAsync(o, 0, 8, s2));
    CALL(cudaEventRecord(e2, s2));
    CALL(cudaStreamWaitEvent(st, e2));
    for (int i = 0; i < 10; i++) add<<<16, 256, 0, st>>>(a, 1, n);
    sum<<<1, 256, 0, st>>>(a, o, n);
    CALL(cudaMemcpyAsync(r, o, 8, cudaMemcpyDefault, st));
    cudaStreamCaptureStatus cs;
    CALL(cudaStreamIsCapturing(st, &cs));
    EXPECT(cs == cudaStreamCaptureStatusActive);
    CALL(cudaStreamEndCapture(st, &c));
    *r = 0;
    CALL(cudaGraphInstantiate(&cx, c));
    CALL(cudaGraphLaunch(cx, st));
    CALL(cudaStreamSynchronize(st));
    EXPECT(*r == 11.0 * n);
    cudaGraphExecUpdateResultInfo ui;
    CALL(cudaGraphExecUpdate(cx, c, &ui));
    CALL(cudaGraphExecDestroy(cx));
    CALL(cudaGraphDestroy(c));
    CALL(cudaGraphExecDestroy(x));
    CALL(cudaGraphDestroy(g));
}
