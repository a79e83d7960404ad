// Requests that are more than a call with its arguments: registration, launches, lists and texts.
#include <cstring>

#include "serve.h"

using namespace wire;

int unsupported_call(const char* name);

namespace {

// Number of an image that was registered; the handle is one more.
u32 take_image(Connection& c, Reader& in) {
    u64 handle = in.take<u64>();
    if (!handle || handle > runtime().images.size()) c.malformed("a handle of no image");
    return (u32)handle - 1;
}

void register_image(Connection&, Reader& in, Writer& out) {
    auto* kept = new std::string(in.at, in.left);
    in.bytes(in.left);
    runtime().images.push_back({kept->data(), kept->size()});
    out.put((u64)runtime().images.size());
}

void register_function(Connection& c, Reader& in, Writer&) {
    auto* r = new Registered;
    r->image = take_image(c, in);
    u64 host = in.take<u64>();
    r->name = in.text();
    if (!in.good) return;
    runtime().functions[(const void*)host] = r;
    runtime().handles.insert(r);
}

void register_variable(Connection& c, Reader& in, Writer&) {
    u32 image = take_image(c, in);
    u64 host = in.take<u64>(), bytes = in.take<u64>();
    bool constant = in.take<u8>() != 0, managed = in.take<u8>() != 0;
    std::string name = in.text();
    if (in.good) runtime().variables[(const void*)host] = {image, name, 0, bytes, constant, managed ? (void**)host : nullptr};
}

void initialize_module(Connection& c, Reader& in, Writer&) {
    u64 handle = take_image(c, in) + 1;
    __cudaInitModule((void**)handle);
}

void parameter_sizes(Connection&, Reader& in, Writer& out) {
    Registered* r = registered(in.take<const void*>());
    KernelInfo* k = r ? kernel_of(r) : nullptr;
    bool known = k && k->function;
    out.put((u8)known), out.put((u32)(known ? k->param_sizes.size() : 0));
    for (size_t i = 0; known && i < k->param_sizes.size(); i++) out.put(k->param_sizes[i]);
}

void launch(Connection& c, Reader& in, Writer& out) {
    auto* function = in.take<const void*>();
    auto grid = in.take<dim3>(), block = in.take<dim3>();
    u64 shared = in.take<u64>();
    auto stream = in.take<cudaStream_t>();
    bool cooperative = in.take<u8>() != 0;
    std::vector<void*> arguments = take_arguments(in, function);
    if (!in.good) return;
    Registered* r = registered(function);
    // of a kernel that cannot be translated nobody knows what it takes; the launch says why
    if (r && kernel_of(r)->function && arguments.size() != r->kernel->param_sizes.size())
        c.malformed("a launch without the kernel's arguments");
    auto start = cooperative ? cudaLaunchCooperativeKernel : cudaLaunchKernel;
    out.put(start(function, grid, block, arguments.data(), shared, stream));
}

void unsupported_request(Connection&, Reader& in, Writer& out) {
    std::string name = in.text().substr(0, 100);
    if (in.good) out.put(unsupported_call(name.c_str()));
}

void failed(Connection&, Reader& in, Writer& out) { out.put(fail((cudaError_t)in.take<u32>())); }

// --- lists ------------------------------------------------------------------------------------------

u64 take_room(Connection& c, Reader& in) {
    u64 room = in.take<u64>();
    if (room > MOST_NODES) c.malformed("a list that is too long");
    return room;
}

void nodes(Connection& c, Reader& in, Writer& out) {
    auto what = in.take<u32>();
    auto* of = in.take<void*>();
    bool wanted = in.take<u8>() != 0;
    size_t count = wanted ? take_room(c, in) : (in.take<u64>(), 0);
    if (!in.good) return;
    if (what > DEPENDENTS) c.malformed("a list of nobody knows what");
    bool of_graph = what == ALL_NODES || what == ROOT_NODES;
    if (cudaError_t error = of_graph ? check((cudaGraph_t)of) : check((cudaGraphNode_t)of)) return out.put(fail(error));
    std::vector<cudaGraphNode_t> found(count);
    cudaGraphNode_t* place = wanted ? found.data() : nullptr;
    cudaError_t error = what == ALL_NODES    ? cudaGraphGetNodes((cudaGraph_t)of, place, &count)
                        : what == ROOT_NODES ? cudaGraphGetRootNodes((cudaGraph_t)of, place, &count)
                        : what == DEPENDENCIES
                            ? cudaGraphNodeGetDependencies((cudaGraphNode_t)of, place, nullptr, &count)
                            : cudaGraphNodeGetDependentNodes((cudaGraphNode_t)of, place, nullptr, &count);
    out.put(error), out.put((u64)count);
    if (wanted) out.bytes(found.data(), count * sizeof found[0]);
}

void edges(Connection& c, Reader& in, Writer& out) {
    auto graph = in.take<cudaGraph_t>();
    bool wanted = in.take<u8>() != 0;
    size_t count = wanted ? take_room(c, in) : (in.take<u64>(), 0);
    if (!in.good) return;
    if (cudaError_t error = check(graph)) return out.put(fail(error));
    std::vector<cudaGraphNode_t> from(count), to(count);
    out.put(cudaGraphGetEdges(graph, wanted ? from.data() : nullptr, wanted ? to.data() : nullptr, nullptr, &count));
    out.put((u64)count);
    if (!wanted) return;
    out.bytes(from.data(), count * sizeof from[0]), out.bytes(to.data(), count * sizeof to[0]);
}

void capture_info(Connection&, Reader& in, Writer& out) {
    auto stream = in.take<cudaStream_t>();
    cudaStreamCaptureStatus status{};
    unsigned long long id = 0;
    cudaGraph_t graph = nullptr;
    const cudaGraphNode_t* tail = nullptr;
    size_t count = 0;
    cudaError_t error = check(stream) ? fail(check(stream))
                                      : cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &tail, nullptr, &count);
    out.put(error), out.put(status), out.put((u64)id), out.put(graph), out.put((u64)count);
    out.bytes(tail, count * sizeof *tail);
}

// --- texts and settings -------------------------------------------------------------------------------

void function_name(Connection&, Reader& in, Writer& out) {
    const char* name = "";
    out.put(cudaFuncGetName(&name, in.take<const void*>()));
    out.text(name);
}

void set_pool(Connection&, Reader& in, Writer& out) {
    auto attribute = in.take<cudaMemPoolAttr>();
    u64 value = in.take<u64>();
    if (in.good) out.put(cudaMemPoolSetAttribute(nullptr, attribute, &value));
}

void get_pool(Connection&, Reader& in, Writer& out) {
    u64 value = 0;
    out.put(cudaMemPoolGetAttribute(nullptr, in.take<cudaMemPoolAttr>(), &value));
    out.put(value);
}

void freed_by_node(Connection&, Reader& in, Writer& out) {
    auto node = in.take<cudaGraphNode_t>();
    void* pointer = nullptr;
    out.put(check(node) ? fail(check(node)) : cudaGraphMemFreeNodeGetParams(node, &pointer));
    out.put(pointer);
}

const std::map<u32, Handler>& specials() {
    static auto* all = new std::map<u32, Handler>{
        {REGISTER_IMAGE, {"an image", register_image, false}},
        {REGISTER_FUNCTION, {"a function", register_function, false}},
        {REGISTER_VARIABLE, {"a variable", register_variable, false}},
        {INITIALIZE_MODULE, {"a module", initialize_module, false}},
        {PARAMETER_SIZES, {"a kernel's parameters", parameter_sizes, false}},
        {LAUNCH, {"a launch", launch, true}},
        {UNSUPPORTED, {"a call", unsupported_request, false}},
        {FAILED, {"an error", failed, false}},
        {NODES, {"nodes", nodes, false}},
        {EDGES, {"edges", edges, false}},
        {CAPTURE_INFO, {"a capture", capture_info, false}},
        {FUNCTION_NAME, {"a name", function_name, false}},
        {SET_POOL, {"a pool", set_pool, false}},
        {GET_POOL, {"a pool", get_pool, false}},
        {FREED_BY_NODE, {"a node", freed_by_node, false}},
    };
    return *all;
}

}  // namespace

const Handler* special_handler(u32 number) {
    auto it = specials().find(number);
    return it == specials().end() ? nullptr : &it->second;
}

std::vector<void*> take_arguments(Reader& in, const void* function) {
    Registered* r = registered(function);
    KernelInfo* k = r ? kernel_of(r) : nullptr;
    u32 count = in.take<u32>();
    std::vector<void*> pointers;
    for (u32 i = 0; i < count && in.good; i++) {
        u32 bytes = in.take<u32>();
        const char* at = in.bytes(bytes);
        if (!k || i >= k->param_sizes.size() || k->param_sizes[i] != bytes) in.good = false;
        pointers.push_back((void*)at);
    }
    return in.good ? pointers : std::vector<void*>{};
}
