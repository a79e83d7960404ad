// CUDA graphs: nodes, and what is made of them when a graph is instantiated.
#pragma once

#include "cudart.h"

using Work = std::function<cudaError_t()>;

// Objects that programs name by their address: host code in another process may name anything.
template <class T>
class Known {
  public:
    Known() { all().insert((T*)this); }
    Known(const Known&) : Known() {}
    ~Known() { all().erase((T*)this); }
    static bool is(const T* object) { return all().count((T*)object); }

  private:
    static std::set<T*>& all() {
        static auto* set = new std::set<T*>;
        return *set;
    }
};

struct Node : Known<Node> {
    Node(cudaGraphNodeType kind, Work what) : type(kind), work(std::move(what)) {}
    cudaGraphNodeType type;
    Work work;
    std::vector<Node*> after;
    // what a program may ask for again, by type
    cudaKernelNodeParams kernel{};
    cudaMemcpy3DParms copy{};
    cudaMemsetParams fill{};
    cudaHostNodeParams host{};
    cudaMemAllocNodeParams allocation{};
    Graph* child = nullptr;
    cudaEvent_t event = nullptr;
    Graph* owner = nullptr;
    Node* origin = nullptr;  // what it is a copy of
};
struct Graph : Known<Graph> {
    std::vector<Node*> nodes;
    u64 id = 0;
    Stream* origin = nullptr;
    // nodes stay, without a graph
    ~Graph() {
        for (Node* n : nodes) n->owner = nullptr;
    }
};

struct Step { Node* node; cudaGraphNodeType type; Work work; bool enabled = true; };
struct Executable : Known<Executable> {
    explicit Executable(std::vector<Step> all) : steps(std::move(all)) {}
    std::vector<Step> steps;
};

// All nodes before and including `n` that were not seen yet, in an order that respects the dependencies.
void visit(Node* n, std::set<Node*>& seen, std::vector<Step>& out);
std::vector<Step> steps_of(Graph* g);
cudaError_t run_steps(const std::vector<Step>& steps);
Node* add_node(Graph* g, cudaGraphNodeType type, Work work, const cudaGraphNode_t* after, size_t count);
// What a node does when it is its turn; null for a kernel that is not known. Arguments are those of now.
Work kernel_work(const cudaKernelNodeParams& p);
Work fill_work(const cudaMemsetParams& p);
Work copy_work(const cudaMemcpy3DParms& p);
Work host_work(const cudaHostNodeParams& p);
