// Sizes and strides, apart from any memory: dense strides, views, and strided copies as pitched ones.
#pragma once

#include <cupilot/options.h>

namespace cupilot {

constexpr int kMaxDimensions = 8;

inline int64_t wrap(int64_t index, int64_t count, const char* what) {
  const int64_t wrapped = index < 0 ? index + count : index;
  TORCH_CHECK(wrapped >= 0 && wrapped < count, what, " ", index, " is outside a range of ", count);
  return wrapped;
}

// Sizes and strides in elements, and the first element's place in its storage.
struct Layout {
  int rank = 0;
  int64_t sizes[kMaxDimensions] = {};
  int64_t strides[kMaxDimensions] = {};
  int64_t offset = 0;

  void add(int64_t size, int64_t stride) {
    TORCH_CHECK(rank < kMaxDimensions, "tensors have at most ", kMaxDimensions, " dimensions here");
    sizes[rank] = size;
    strides[rank++] = stride;
  }
  void remove(int axis) {
    for (int i = axis + 1; i < rank; ++i) {
      sizes[i - 1] = sizes[i];
      strides[i - 1] = strides[i];
    }
    --rank;
  }
  int64_t count() const {
    int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= sizes[i];
    return product;
  }
  bool contiguous() const {
    int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (sizes[i] == 0) return true;
      if (sizes[i] != 1 && strides[i] != expected) return false;
      expected *= sizes[i];
    }
    return true;
  }
  // Elements from the first to just after the last; needs non-negative strides, which tensors have.
  int64_t span() const {
    int64_t last = 0;
    for (int i = 0; i < rank; ++i) {
      if (sizes[i] == 0) return 0;
      last += (sizes[i] - 1) * strides[i];
    }
    return last + 1;
  }
};

inline Layout row_major(c10::IntArrayRef sizes) {
  Layout layout;
  int64_t stride = 1;
  for (int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "a tensor cannot have the size ", sizes);
    layout.add(size, 0);
  }
  for (int i = layout.rank - 1; i >= 0; --i) {
    layout.strides[i] = stride;
    stride *= layout.sizes[i] > 1 ? layout.sizes[i] : 1;
  }
  return layout;
}

// Sizes are kept, the second dimension is the fastest in memory: of images (4) and of volumes (5 dimensions).
inline Layout channels_last(c10::IntArrayRef sizes) {
  Layout layout = row_major(sizes);
  TORCH_CHECK(layout.rank >= 4, "channels_last of a tensor of ", layout.rank, " dimensions");
  int64_t stride = layout.sizes[1] > 1 ? layout.sizes[1] : 1;
  layout.strides[1] = 1;
  for (int i = layout.rank - 1; i >= 0; --i) {
    if (i == 1) continue;
    layout.strides[i] = stride;
    stride *= layout.sizes[i] > 1 ? layout.sizes[i] : 1;
  }
  return layout;
}

inline Layout in_format(c10::IntArrayRef sizes, c10::MemoryFormat format) {
  const bool last = format == c10::MemoryFormat::ChannelsLast || format == c10::MemoryFormat::ChannelsLast3d;
  return last ? channels_last(sizes) : row_major(sizes);
}

// Axes from the slowest to the fastest in memory.
inline void order_by_stride(const Layout& layout, int (&axes)[kMaxDimensions]) {
  for (int i = 0; i < layout.rank; ++i) {
    int j = i;
    for (; j > 0 && layout.strides[axes[j - 1]] < layout.strides[i]; --j) axes[j] = axes[j - 1];
    axes[j] = i;
  }
}

// Without gaps, in the order of axes that the given layout has in memory: what empty_like() makes.
inline Layout dense_like(const Layout& like) {
  bool expanded = false;
  for (int i = 0; i < like.rank; ++i) expanded = expanded || (like.strides[i] == 0 && like.sizes[i] > 1);
  if (expanded || like.contiguous()) return row_major(c10::IntArrayRef(like.sizes, size_t(like.rank)));
  int axes[kMaxDimensions] = {};
  order_by_stride(like, axes);
  Layout dense = like;
  dense.offset = 0;
  int64_t stride = 1;
  for (int i = like.rank - 1; i >= 0; --i) {
    dense.strides[axes[i]] = stride;
    stride *= like.sizes[axes[i]] > 1 ? like.sizes[axes[i]] : 1;
  }
  return dense;
}

// No element twice and no gaps, in whatever order.
inline bool is_dense(const Layout& layout) {
  if (layout.span() != layout.count()) return false;
  const Layout dense = dense_like(layout);
  for (int i = 0; i < layout.rank; ++i)
    if (layout.sizes[i] > 1 && layout.strides[i] != dense.strides[i]) return false;
  return true;
}

// The wanted sizes with a -1 replaced by what is left over.
inline Layout inferred(c10::IntArrayRef wanted, int64_t count) {
  Layout layout;
  int open = -1;
  int64_t product = 1;
  for (int64_t size : wanted) {
    TORCH_CHECK(size >= -1 && !(size == -1 && open >= 0), "the shape ", wanted, " is not valid");
    if (size == -1) open = layout.rank;
    else product *= size;
    layout.add(size, 1);
  }
  if (open >= 0) layout.sizes[open] = product ? count / product : 0;
  TORCH_CHECK(layout.count() == count, "the shape ", wanted, " does not fit ", count, " elements");
  return layout;
}

// Gives `wanted` (sizes only) the strides that make it a view of `from`; false when only a copy could.
inline bool view_strides(const Layout& from, Layout& wanted) {
  wanted.offset = from.offset;
  if (from.count() == 0) {
    wanted = row_major(c10::IntArrayRef(wanted.sizes, size_t(wanted.rank)));
    return true;
  }
  Layout source;
  for (int i = 0; i < from.rank; ++i)
    if (from.sizes[i] != 1) source.add(from.sizes[i], from.strides[i]);
  int axis = wanted.rank - 1;
  for (int i = source.rank - 1; i >= 0;) {
    // a run of source axes that lie one after the other without gaps, then the wanted axes that fill it
    const int64_t stride = source.strides[i];
    int64_t run = source.sizes[i];
    for (--i; i >= 0 && source.strides[i] == run * stride; --i) run *= source.sizes[i];
    int64_t filled = 1;
    while (axis >= 0 && filled < run) {
      wanted.strides[axis] = filled * stride;
      filled *= wanted.sizes[axis--];
    }
    if (filled != run) return false;
  }
  // what remains is of size 1 and lies outside everything
  for (; axis >= 0; --axis)
    wanted.strides[axis] = axis + 1 < wanted.rank ? wanted.sizes[axis + 1] * wanted.strides[axis + 1] : 1;
  return true;
}

// Two layouts of equal sizes with axes in the order of the first one's memory, merged where both have no gap.
inline void merge(const Layout& to, const Layout& from, Layout& merged_to, Layout& merged_from) {
  int axes[kMaxDimensions] = {};
  order_by_stride(to, axes);
  for (int k = 0; k < to.rank; ++k) {
    const int axis = axes[k];
    const int64_t size = to.sizes[axis], to_stride = to.strides[axis], from_stride = from.strides[axis];
    if (size == 1) continue;
    const int last = merged_to.rank - 1;
    if (last >= 0 && merged_to.strides[last] == size * to_stride && merged_from.strides[last] == size * from_stride) {
      merged_from.sizes[last] = merged_to.sizes[last] *= size;
      merged_to.strides[last] = to_stride;
      merged_from.strides[last] = from_stride;
    } else {
      merged_to.add(size, to_stride);
      merged_from.add(size, from_stride);
    }
  }
}

// A copy between two merged layouts, as rows of `width` elements at two pitches.
struct PitchedCopy {
  int64_t width = 1, rows = 1, to_pitch = 0, from_pitch = 0;
};

// False when the copy is none of that kind: a transposition, or single elements far apart.
inline bool pitched(const Layout& to, const Layout& from, PitchedCopy& copy) {
  int levels = to.rank;
  if (levels > 0 && to.strides[levels - 1] == 1 && from.strides[levels - 1] == 1) copy.width = to.sizes[--levels];
  if (levels == 0) return true;
  copy.rows = to.sizes[0];
  copy.to_pitch = to.strides[0];
  copy.from_pitch = from.strides[0];
  return levels == 1 && copy.to_pitch >= copy.width && copy.from_pitch >= copy.width;
}

}  // namespace cupilot
