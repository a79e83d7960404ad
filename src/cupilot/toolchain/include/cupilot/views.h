// Views of tensors: other sizes and strides of the same memory.  reshape() and flatten() copy where they must.
#pragma once

#include <cupilot/tensor.h>

namespace at {

inline Tensor Tensor::view(IntArrayRef sizes) const {
  Layout wanted = cupilot::inferred(sizes, numel());
  TORCH_CHECK(cupilot::view_strides(layout(), wanted), "view ", sizes, " of a tensor of sizes ", this->sizes(),
              " and strides ", strides(), " needs a copy: use reshape");
  return with(wanted);
}
inline Tensor Tensor::reshape(IntArrayRef sizes) const {
  Layout wanted = cupilot::inferred(sizes, numel());
  return cupilot::view_strides(layout(), wanted) ? with(wanted) : contiguous().view(sizes);
}
inline Tensor Tensor::flatten(int64_t first, int64_t last) const {
  if (dim() == 0) return view({1});
  const int begin = wrap_axis(first), end = wrap_axis(last);
  TORCH_CHECK(begin <= end, "flatten from dimension ", begin, " to ", end);
  Layout wanted;
  for (int i = 0; i < begin; ++i) wanted.add(layout().sizes[i], 0);
  wanted.add(1, 0);
  for (int i = begin; i <= end; ++i) wanted.sizes[begin] *= layout().sizes[i];
  for (int i = end + 1; i < dim(); ++i) wanted.add(layout().sizes[i], 0);
  return reshape(IntArrayRef(wanted.sizes, size_t(wanted.rank)));
}
inline Tensor Tensor::transpose(int64_t first, int64_t second) const {
  if (dim() == 0) return *this;
  Layout changed = layout();
  const int a = wrap_axis(first), b = wrap_axis(second);
  std::swap(changed.sizes[a], changed.sizes[b]);
  std::swap(changed.strides[a], changed.strides[b]);
  return with(changed);
}
inline Tensor Tensor::t() const {
  TORCH_CHECK(dim() <= 2, "t() of a tensor of ", dim(), " dimensions");
  return dim() < 2 ? *this : transpose(0, 1);
}
inline Tensor Tensor::permute(IntArrayRef axes) const {
  TORCH_CHECK(int64_t(axes.size()) == dim(), "permute ", axes, " of a tensor of ", dim(), " dimensions");
  Layout changed;
  changed.offset = layout().offset;
  unsigned seen = 0;
  for (int64_t axis : axes) {
    const int from = wrap_axis(axis);
    TORCH_CHECK(!(seen >> from & 1), "permute ", axes, " names a dimension twice");
    seen |= 1u << from;
    changed.add(layout().sizes[from], layout().strides[from]);
  }
  return with(changed);
}
inline Tensor Tensor::unsqueeze(int64_t axis) const {
  const int place = int(cupilot::wrap(axis, dim() + 1, "dimension"));
  Layout changed;
  changed.offset = layout().offset;
  for (int i = 0; i <= dim(); ++i) {
    if (i == place) changed.add(1, i < dim() ? layout().sizes[i] * layout().strides[i] : 1);
    if (i < dim()) changed.add(layout().sizes[i], layout().strides[i]);
  }
  return with(changed);
}
inline Tensor Tensor::squeeze() const {
  Layout changed = layout();
  for (int i = changed.rank - 1; i >= 0; --i)
    if (changed.sizes[i] == 1) changed.remove(i);
  return with(changed);
}
inline Tensor Tensor::squeeze(int64_t axis) const {
  if (dim() == 0 || size(axis) != 1) return *this;
  Layout changed = layout();
  changed.remove(wrap_axis(axis));
  return with(changed);
}
inline Tensor Tensor::expand(IntArrayRef sizes, bool) const {
  const int added = int(sizes.size()) - int(dim());
  TORCH_CHECK(added >= 0, "expand to fewer dimensions");
  Layout changed;
  changed.offset = layout().offset;
  for (int i = 0; i < int(sizes.size()); ++i) {
    const int64_t mine = i < added ? 1 : layout().sizes[i - added];
    const int64_t wanted = sizes[i] == -1 && i >= added ? mine : sizes[i];
    TORCH_CHECK(wanted >= 0 && (mine == wanted || mine == 1), "expand ", sizes, " of a tensor of sizes ",
                this->sizes());
    changed.add(wanted, i < added || mine != wanted ? 0 : layout().strides[i - added]);
  }
  return with(changed);
}
inline Tensor Tensor::select(int64_t axis, int64_t index) const {
  const int place = wrap_axis(axis);
  Layout changed = layout();
  changed.offset += cupilot::wrap(index, changed.sizes[place], "index") * changed.strides[place];
  changed.remove(place);
  return with(changed);
}
inline Tensor Tensor::slice(int64_t axis, optional<int64_t> start, optional<int64_t> end, int64_t step) const {
  TORCH_CHECK(step > 0, "slice with the step ", step);
  const int place = wrap_axis(axis);
  Layout changed = layout();
  const int64_t count = changed.sizes[place];
  const int64_t from = clamp(start.value_or(0), count), to = clamp(end.value_or(count), count);
  changed.offset += from * changed.strides[place];
  changed.sizes[place] = to > from ? (to - from + step - 1) / step : 0;
  changed.strides[place] *= step;
  return with(changed);
}
inline Tensor Tensor::narrow(int64_t axis, int64_t start, int64_t length) const {
  const int64_t count = size(axis), from = start < 0 ? start + count : start;
  TORCH_CHECK(from >= 0 && length >= 0 && from + length <= count, "narrow from ", start, " by ", length,
              " in a dimension of ", count);
  return slice(axis, from, from + length);
}

inline Tensor Tensor::view(ScalarType type) const {
  TORCH_CHECK(elementSize(type) == itemsize(), "view of elements as elements of another size");
  return Tensor(body().storage, layout(), type);
}
inline Tensor Tensor::unflatten(int64_t axis, IntArrayRef sizes) const {
  const int place = wrap_axis(axis);
  const Layout parts = cupilot::inferred(sizes, size(axis));
  Layout wanted;
  for (int i = 0; i < dim(); ++i) {
    if (i != place) wanted.add(size(i), 0);
    for (int k = 0; i == place && k < parts.rank; ++k) wanted.add(parts.sizes[k], 0);
  }
  return view(IntArrayRef(wanted.sizes, size_t(wanted.rank)));
}
inline Tensor Tensor::movedim(int64_t from, int64_t to) const {
  const int source = wrap_axis(from), target = wrap_axis(to);
  int64_t axes[cupilot::kMaxDimensions] = {};
  for (int i = 0, left = 0; i < dim(); ++i) {
    left += left == source;
    axes[i] = i == target ? source : left++;
  }
  return permute(IntArrayRef(axes, size_t(dim())));
}
inline Tensor Tensor::as_strided(IntArrayRef sizes, IntArrayRef strides, optional<int64_t> offset) const {
  TORCH_CHECK(sizes.size() == strides.size(), "as_strided with sizes ", sizes, " and strides ", strides);
  Layout changed;
  changed.offset = offset.value_or(layout().offset);
  for (size_t i = 0; i < sizes.size(); ++i) changed.add(sizes[i], strides[i]);
  return with(changed);
}
#ifndef CUPILOT_WITHOUT_VECTOR
template <class Parts>
Parts Tensor::split(IntArrayRef lengths, int64_t axis) const {
  Parts parts;
  int64_t start = 0;
  for (int64_t length : lengths) {
    parts.push_back(narrow(axis, start, length));
    start += length;
  }
  TORCH_CHECK(start == size(axis), "split of ", size(axis), " into ", lengths);
  return parts;
}
template <class Parts>
Parts Tensor::split(int64_t length, int64_t axis) const {
  TORCH_CHECK(length > 0, "split into parts of ", length);
  Parts parts;
  for (int64_t start = 0; start < size(axis); start += length) parts.push_back(slice(axis, start, start + length));
  return parts;
}
template <class Parts>
Parts Tensor::chunk(int64_t count, int64_t axis) const {
  TORCH_CHECK(count > 0, "chunk into ", count);
  return split<Parts>((size(axis) + count - 1) / count, axis);
}
template <class Parts>
Parts Tensor::unbind(int64_t axis) const {
  Parts parts;
  for (int64_t i = 0; i < size(axis); ++i) parts.push_back(select(axis, i));
  return parts;
}
#endif

// --- the same as functions
inline Tensor reshape(const Tensor& x, IntArrayRef sizes) { return x.reshape(sizes); }
inline Tensor flatten(const Tensor& x, int64_t first = 0, int64_t last = -1) { return x.flatten(first, last); }
inline Tensor transpose(const Tensor& x, int64_t first, int64_t second) { return x.transpose(first, second); }
inline Tensor t(const Tensor& x) { return x.t(); }
inline Tensor permute(const Tensor& x, IntArrayRef axes) { return x.permute(axes); }
inline Tensor unsqueeze(const Tensor& x, int64_t axis) { return x.unsqueeze(axis); }
inline Tensor squeeze(const Tensor& x) { return x.squeeze(); }
inline Tensor squeeze(const Tensor& x, int64_t axis) { return x.squeeze(axis); }
inline Tensor narrow(const Tensor& x, int64_t axis, int64_t start, int64_t length) {
  return x.narrow(axis, start, length);
}
inline Tensor select(const Tensor& x, int64_t axis, int64_t index) { return x.select(axis, index); }
#ifndef CUPILOT_WITHOUT_VECTOR
template <class Parts = std::vector<Tensor>>
Parts split(const Tensor& x, int64_t length, int64_t axis = 0) {
  return x.split<Parts>(length, axis);
}
template <class Parts = std::vector<Tensor>>
Parts chunk(const Tensor& x, int64_t count, int64_t axis = 0) {
  return x.chunk<Parts>(count, axis);
}
template <class Parts = std::vector<Tensor>>
Parts unbind(const Tensor& x, int64_t axis = 0) {
  return x.unbind<Parts>(axis);
}
#endif
inline Tensor clone(const Tensor& x) { return x.clone(); }
inline int64_t numel(const Tensor& x) { return x.numel(); }

}  // namespace at
