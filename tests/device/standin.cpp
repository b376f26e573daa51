// A device for torch that computes on the CPU and behaves like a GPU towards the host. See README.md.
//
// The addresses that torch has of a tensor on the device are never readable. The bytes lie at the
// same place of a second mapping, which only the threads of the streams use.

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

// Python's, without its headers: who waits for the device must not hold the interpreter's lock.
extern "C" int PyGILState_Check();
extern "C" void* PyEval_SaveThread();
extern "C" void PyEval_RestoreThread(void*);

namespace {

using torch::jit::Stack;
using Ticket = uint64_t;  // the number of a piece of work in its stream, from 1
using Work = std::function<void()>;

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 2;
constexpr size_t kCapacity = size_t{2} << 30;  // bytes of each device
constexpr size_t kAlignment = 512;
constexpr c10::StreamId kStreams = 4;  // stream 0 is the default one
constexpr int kDirt = 0xFF;            // bytes of memory that nobody has written: NaN, -1
constexpr size_t kSoiled = size_t{16} << 20;  // bytes of a block that are made dirty

// While it is true, a stream does only work that the host waits for: the slowest device there is.
std::atomic<bool> is_held{false};

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

// A stream: work in the order of its calls, in a thread of its own.
class Queue {
 public:
  Ticket push(Work work) {
    std::lock_guard lock(mutex_);
    if (!started_) {
      started_ = true;  // not before the first work: a process may fork until then
      std::thread([this] { serve(); }).detach();
    }
    work_.push_back(std::move(work));
    changed_.notify_all();
    return ++pushed_;
  }

  void await(Ticket ticket) {
    std::unique_lock lock(mutex_);
    wanted_ = std::max(wanted_, ticket);
    changed_.notify_all();
    changed_.wait(lock, [&] { return done_ >= ticket; });
  }

  bool has_passed(Ticket ticket) {
    std::lock_guard lock(mutex_);
    return done_ >= ticket;
  }

  Ticket last() {
    std::lock_guard lock(mutex_);
    return pushed_;
  }

  // The first error of a kernel of any stream: another stream may have waited for it.
  static std::string take_error() {
    std::lock_guard lock(error_mutex_);
    return std::exchange(error_, {});
  }

  void wake() {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

 private:
  void serve() {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (;;) {
      Work work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !work_.empty() && (!is_held || done_ < wanted_); });
        work = std::move(work_.front());
        work_.pop_front();
      }
      try {
        work();
      } catch (const std::exception& failure) {
        std::lock_guard lock(error_mutex_);
        if (error_.empty()) error_ = failure.what();
      }
      work = nullptr;  // release what it holds before it counts as done
      std::lock_guard lock(mutex_);
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
  Ticket pushed_ = 0, done_ = 0, wanted_ = 0;
  bool started_ = false;
  inline static std::mutex error_mutex_;
  inline static std::string error_;
};

// The memory and the streams of one device. Everything here lives as long as the process.
struct Gpu {
  std::mutex mutex;
  char* hidden = nullptr;  // addresses that torch has; reading them is a segmentation fault
  char* memory = nullptr;  // where the bytes are
  size_t top = 0;
  std::multimap<size_t, size_t> released;  // by size: offsets of blocks that can be used again
  c10::CachingDeviceAllocator::DeviceStats stats;
  Queue streams[kStreams];

  size_t take(size_t size) {
    std::lock_guard lock(mutex);
    if (!hidden) {
      const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
      hidden = static_cast<char*>(mmap(nullptr, kCapacity, PROT_NONE, flags, -1, 0));
      memory = static_cast<char*>(mmap(nullptr, kCapacity, PROT_READ | PROT_WRITE, flags, -1, 0));
      TORCH_CHECK(hidden != MAP_FAILED && memory != MAP_FAILED, "standin: no address space");
    }
    if (auto found = released.find(size); found != released.end()) {
      const size_t offset = found->second;
      released.erase(found);
      return offset;
    }
    if (top + size > kCapacity) {
      ++stats.num_ooms;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "standin out of memory: ", size, " bytes");
    }
    top += size;
    stats.reserved_bytes[0].increase(size);
    return top - size;
  }

  void count(int64_t bytes) {
    std::lock_guard lock(mutex);
    auto& stat = stats.allocated_bytes[0];
    bytes > 0 ? stat.increase(bytes) : stat.decrease(-bytes);
  }

  // The beginning of a large block is enough to show, and takes no gigabytes of the host.
  void soil(size_t offset, size_t size) {
    std::memset(memory + offset, kDirt, std::min(size, kSoiled));
  }

  void release(size_t offset, size_t size) {
    std::lock_guard lock(mutex);
    released.emplace(size, offset);
  }
};

Gpu* const gpus = new Gpu[kDevices];

thread_local c10::DeviceIndex current_device = 0;
thread_local c10::StreamId current_streams[kDevices] = {};

Queue& queue_of(const c10::Stream& stream) { return gpus[stream.device_index()].streams[stream.id()]; }

Queue& current_queue(c10::DeviceIndex device) {
  return gpus[device].streams[current_streams[device]];
}

// Wait on the host; an error of a kernel is raised here, later than its call.
void synchronize(Queue& queue, Ticket ticket) {
  void* python = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
  queue.await(ticket);
  if (python) PyEval_RestoreThread(python);
  const auto error = Queue::take_error();
  TORCH_CHECK(error.empty(), "standin: a kernel failed: ", error);
}

// ---------------------------------------------------------------------------------------- memory

struct Block {
  c10::DeviceIndex device;
  size_t offset, size;
  Queue* stream;             // the one that it was allocated in
  std::set<Queue*> used_by;  // the others (record_stream)
};

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  Gpu& gpu = gpus[block->device];
  gpu.count(-static_cast<int64_t>(block->size));
  std::vector<std::pair<Queue*, Ticket>> users;
  for (Queue* other : block->used_by) users.emplace_back(other, other->last());
  // In the order of its own stream, like CUDA's allocator: another stream must have been recorded.
  block->stream->push([block, &gpu, users] {
    for (auto& [other, ticket] : users) other->await(ticket);
    gpu.soil(block->offset, block->size);
    gpu.release(block->offset, block->size);
    delete block;
  });
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex device = current_device;
    if (bytes == 0) return {nullptr, c10::Device(kType, device)};
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    Gpu& gpu = gpus[device];
    const size_t offset = gpu.take(size);
    gpu.count(static_cast<int64_t>(size));
    auto* block = new Block{device, offset, size, &current_queue(device), {}};
    block->stream->push([&gpu, offset, size] { gpu.soil(offset, size); });
    return {gpu.hidden + offset, block, &free_block, c10::Device(kType, device)};
  }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "standin: copy_data is not needed by torch");
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    if (auto* block = static_cast<Block*>(pointer.get_context())) {
      if (&queue_of(stream) != block->stream) block->used_by.insert(&queue_of(stream));
    }
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    std::lock_guard lock(gpus[device].mutex);
    return gpus[device].stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    std::lock_guard lock(gpus[device].mutex);
    gpus[device].stats.num_ooms = 0;
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    std::lock_guard lock(gpus[device].mutex);
    gpus[device].stats.allocated_bytes[0].reset_peak();
    gpus[device].stats.reserved_bytes[0].reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    std::lock_guard lock(gpus[device].mutex);
    return {kCapacity - gpus[device].top, kCapacity};
  }
};
Allocator* const allocator = new Allocator;
REGISTER_ALLOCATOR(kType, allocator)

// Host memory that a stream copies from and to while the host goes on.
struct PinnedAllocator final : c10::Allocator {
  std::mutex mutex;
  std::map<const char*, size_t> blocks;

  c10::DataPtr allocate(size_t bytes) override {
    auto* memory = static_cast<char*>(std::malloc(std::max<size_t>(bytes, 1)));
    std::memset(memory, kDirt, bytes);
    std::lock_guard lock(mutex);
    blocks[memory] = std::max<size_t>(bytes, 1);
    return {memory, memory, raw_deleter(), c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* target, const void* source, size_t bytes) const override {
    std::memcpy(target, source, bytes);
  }
  bool holds(const void* pointer) {
    std::lock_guard lock(mutex);
    const auto* address = static_cast<const char*>(pointer);
    auto next = blocks.upper_bound(address);
    return next != blocks.begin() && address < std::prev(next)->first + std::prev(next)->second;
  }
};
PinnedAllocator* const pinned = new PinnedAllocator;

c10::DeleterFnPtr PinnedAllocator::raw_deleter() const {
  return [](void* memory) {
    {
      std::lock_guard lock(pinned->mutex);
      pinned->blocks.erase(static_cast<char*>(memory));
    }
    std::free(memory);
  };
}

// ---------------------------------------------------------------------------- streams and events

struct Event {
  Queue* queue = nullptr;
  Ticket ticket = 0;
  std::shared_ptr<double> passed_ms = std::make_shared<double>(0.0);
};

Event& checked(void* event) {
  TORCH_CHECK(event, "standin: the event has not been recorded");
  return *static_cast<Event*>(event);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, current_device}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < kDevices, "standin: there is no device ", int{device.index()});
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  c10::Stream getStream(c10::Device device) const override {
    const auto index = device.index() < 0 ? current_device : device.index();
    return stream(index, current_streams[index]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream(device.index() < 0 ? current_device : device.index(), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    static std::atomic<c10::StreamId> next{0};
    return stream(device.index() < 0 ? current_device : device.index(), 1 + next++ % (kStreams - 1));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const auto before = getStream(next.device());
    current_streams[next.device_index()] = next.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    auto& queue = queue_of(stream);
    return queue.has_passed(queue.last());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    auto& queue = queue_of(stream);
    synchronize(queue, queue.last());
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    for (Queue& queue : gpus[device].streams) synchronize(queue, queue.last());
  }
  void recordDataPtrOnStream(const c10::DataPtr& pointer, const c10::Stream& stream) const override {
    allocator->recordStream(pointer, stream);
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (!*event) *event = new Event;
    auto& recorded = checked(*event);
    recorded.queue = &queue_of(stream);
    recorded.passed_ms = std::make_shared<double>(0.0);
    recorded.ticket = recorded.queue->push([time = recorded.passed_ms] { *time = now_ms(); });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;  // never recorded: nothing to wait for
    auto& awaited = checked(event);
    queue_of(stream).push([other = awaited.queue, ticket = awaited.ticket] { other->await(ticket); });
  }
  bool queryEvent(void* event) const override {
    return !event || checked(event).queue->has_passed(checked(event).ticket);
  }
  void synchronizeEvent(void* event) const override {
    if (event) synchronize(*checked(event).queue, checked(event).ticket);
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    TORCH_CHECK(queryEvent(first) && queryEvent(second),
                "standin: an event was read that the device has not passed");
    return *checked(second).passed_ms - *checked(first).passed_ms;
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }

 private:
  static c10::Stream stream(c10::DeviceIndex device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), id);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(c10::DeviceIndex index) {
    device_ = c10::Device(kType, index);
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current_device = device; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return std::exchange(current_device, device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device : exchangeDevice(device);
  }
  bool isPinnedPtr(const void* pointer) const override { return pinned->holds(pointer); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned; }
  at::Device getDeviceFromPtr(void*) const override { return {kType, current_device}; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    static auto* const generators = new std::vector<at::Generator>{
        at::make_generator<Generator>(0), at::make_generator<Generator>(1)};
    return (*generators)[device < 0 ? current_device : device];
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<Generator>(device < 0 ? current_device : device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override;
};
Hooks* const hooks = new Hooks;

// ------------------------------------------------------------------------------------- operators

bool is_here(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }

// The bytes of a tensor of the device, as a tensor of the CPU: only for work in a stream.
at::Tensor bytes_of(const at::Tensor& tensor) {
  const Gpu& gpu = gpus[tensor.device().index()];
  auto* address = static_cast<char*>(tensor.mutable_data_ptr());
  if (address) address = gpu.memory + (address - gpu.hidden);
  return at::from_blob(address, tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

using Change = std::function<at::Tensor(const at::Tensor&)>;

// An argument with each tensor in it changed; torch's lists keep their types.
at::IValue changed(const at::IValue& value, const Change& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      list.push_back(tensor ? std::optional(change(*tensor)) : tensor);
    }
    return list;
  }
  return value;
}

Stack changed(const Stack& values, const Change& change, c10::Device device) {
  Stack result;
  for (const auto& value : values) {
    result.push_back(value.isDevice() ? at::IValue(device) : changed(value, change));
  }
  return result;
}

at::Tensor meta_of(const at::Tensor& tensor) {
  if (!is_here(tensor)) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

// What a kernel reads of the host is read at its call, as the arguments of a launch are.
at::Tensor at_launch(const at::Tensor& tensor) {
  if (is_here(tensor)) return bytes_of(tensor);
  if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return tensor;
  TORCH_CHECK(tensor.dim() == 0, "standin: an argument is on the host, others are on the device");
  return tensor.clone();
}

const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef size,
                         std::optional<c10::MemoryFormat> format) {
  if (self.sizes() == size && !format) return self;
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(size);
  if (format) impl->empty_tensor_restride(*format);
  const size_t bytes = (self.storage_offset() + self.numel()) * self.element_size();
  if (bytes > self.storage().nbytes()) hooks->resizePrivateUse1Bytes(self.storage(), bytes);
  return self;
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

// The results of an operator: its arguments that it writes, or new memory of shapes from meta.
Stack results_of(const c10::OperatorHandle& op, const Stack& arguments, c10::Device device) {
  const auto& schema = op.schema();
  Stack written, results;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (writes(schema.arguments()[i])) written.push_back(arguments[i]);
  }
  const bool is_in_place = schema.name().back() == '_' || schema.returns().empty();
  if (is_in_place) {
    for (size_t i = 0; i < schema.returns().size(); ++i) results.push_back(written[i]);
    return results;
  }
  Stack shapes = changed(arguments, meta_of, at::kMeta);
  {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    op.callBoxed(&shapes);
  }
  const Change allocate = [&](const at::Tensor& shape) {
    if (!shape.defined()) return shape;
    return at::empty_strided(shape.sizes(), shape.strides(), shape.options().device(device));
  };
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto& result = schema.returns()[i];
    TORCH_CHECK(!result.alias_info() || writes(result), "standin: no view operator ", schema.name());
    if (writes(result)) {
      resize(written[i].toTensor(), shapes[i].toTensor().sizes(), std::nullopt);
      results.push_back(written[i]);
    } else {
      results.push_back(changed(shapes[i], allocate));
    }
  }
  return results;
}

// Queue an operator in the current stream; its results have shapes at once and values later.
void launch(const c10::OperatorHandle& op, Stack* stack) {
  const auto number = op.schema().arguments().size();
  Stack arguments = torch::jit::pop(*stack, number);
  auto device = c10::Device(kType, current_device);
  for (const auto& value : arguments) {
    if (value.isTensor() && is_here(value.toTensor())) device = value.toTensor().device();
    if (value.isTensorList() && !value.toTensorList().empty()) {
      device = value.toTensorList().get(0).device();
    }
    if (value.isDevice() && value.toDevice().has_index()) device = value.toDevice();
  }
  const c10::DeviceGuard guard(device);
  const Stack results = results_of(op, arguments, device);
  Stack inputs = changed(arguments, at_launch, at::kCPU);
  const Stack outputs = changed(results, at_launch, at::kCPU);
  const bool makes_new = !op.schema().returns().empty() && !writes(op.schema().returns()[0]);
  current_queue(device.index()).push([op, inputs, outputs, makes_new]() mutable {
    op.callBoxed(&inputs);  // pops its arguments, pushes its results
    if (!makes_new) return;
    for (size_t i = 0; i < outputs.size(); ++i) {
      std::vector<at::Tensor> targets, values;
      changed(outputs[i], [&](const at::Tensor& t) { return targets.emplace_back(t); });
      changed(inputs[i], [&](const at::Tensor& t) { return values.emplace_back(t); });
      for (size_t j = 0; j < targets.size(); ++j) {
        // The CPU leaves empty what nobody may read, such as the statistics of an evaluation.
        if (targets[j].defined() && values[j].numel()) targets[j].copy_(values[j]);
      }
    }
  });
  stack->insert(stack->end(), results.begin(), results.end());
}

void launch_as(const char* name, const c10::OperatorHandle&, Stack* stack) {
  launch(c10::Dispatcher::singleton().findSchemaOrThrow(name, ""), stack);
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout>, std::optional<c10::Device> device,
                 std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(size, allocator, keys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                         std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  const auto type = c10::dtype_or_default(dtype);
  return at::detail::empty_strided_generic(size, stride, allocator, keys, type);
}

// A copy is work of the device's stream. The host waits for it unless its own memory is pinned.
at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking) {
  const auto device = (is_here(target) ? target : source).device();
  TORCH_CHECK(!is_here(source) || source.device() == device, "standin: no copy between devices");
  const c10::DeviceGuard guard(device);
  const auto on_cpu = [](const at::Tensor& t) { return is_here(t) ? bytes_of(t) : t; };
  auto& queue = current_queue(device.index());
  const auto ticket = queue.push(
      [from = on_cpu(source), to = on_cpu(target)]() mutable { to.copy_(from); });
  const auto& host = is_here(source) ? target : source;
  const bool may_go_on = is_here(host) || (non_blocking && pinned->holds(host.const_data_ptr()));
  if (!may_go_on) synchronize(queue, ticket);
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  resize(target, source.sizes(), std::nullopt);
  return copy_from(source, target, false);
}

at::Scalar read_number(const at::Tensor& self) {
  auto number = at::empty(self.sizes(), self.options().device(at::kCPU));
  copy_from(self, number, false);
  return number.item();
}

void Hooks::resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const {
  const c10::DeviceGuard guard(storage.device());
  const Gpu& gpu = gpus[storage.device().index()];
  auto* impl = storage.unsafeGetStorageImpl();
  auto grown = allocator->allocate(bytes);
  if (const auto kept = std::min(impl->nbytes(), bytes)) {
    const auto offset = gpu.memory - gpu.hidden;
    auto *to = static_cast<char*>(grown.get()) + offset;
    const auto* from = static_cast<const char*>(impl->data()) + offset;
    current_queue(current_device).push([to, from, kept] { std::memcpy(to, from, kept); });
  }
  impl->set_data_ptr(std::move(grown));
  impl->set_nbytes(bytes);
}

// Random numbers are drawn at their call, by the CPU's generator in the state of the device's: they
// are those of the CPU with the same seed, and the host never waits for a generator.
void draw(const c10::OperatorHandle& op, Stack* stack, size_t generator_at) {
  Stack arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  TORCH_CHECK(writes(op.schema().arguments()[0]), "standin: no draw ", op.schema().name());
  const at::Tensor target = arguments[0].toTensor();
  auto& given = arguments[generator_at];
  auto source = given.isGenerator() ? given.toGenerator()
                                    : hooks->getDefaultGenerator(target.device().index());
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  generator.set_state(source.get_state());
  given = generator;
  const at::Tensor numbers =
      at::empty_strided(target.sizes(), target.strides(), target.options().device(at::kCPU));
  arguments[0] = numbers;
  op.callBoxed(&arguments);
  source.set_state(generator.get_state());
  current_queue(target.device().index()).push([to = bytes_of(target), numbers]() mutable {
    to.copy_(numbers);
  });
  stack->push_back(target);
}

void fallback(const c10::OperatorHandle& op, Stack* stack) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].type()->str() == "Generator?") return draw(op, stack, i);
  }
  launch(op, stack);
}
void convolution(const c10::OperatorHandle& op, Stack* stack) {
  launch_as("aten::convolution", op, stack);
}
// torch's general one has the sizes of the bias as well: as many as the weight has outputs.
void convolution_backward(const c10::OperatorHandle& op, Stack* stack) {
  const auto weight = torch::jit::peek(*stack, 2, op.schema().arguments().size()).toTensor();
  const bool is_transposed =
      torch::jit::peek(*stack, 6, op.schema().arguments().size()).toBool();
  const auto groups = torch::jit::peek(*stack, 8, op.schema().arguments().size()).toInt();
  const int64_t outputs = is_transposed ? weight.size(1) * groups : weight.size(0);
  stack->insert(stack->end() - 7, at::IValue(std::vector<int64_t>{outputs}));
  launch_as("aten::convolution_backward", op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("unfold", at::native::unfold);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("resize_", resize);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", read_number);
  m.impl("convolution_overrideable",
         torch::CppFunction::makeFromBoxedFunction<&convolution>());
  m.impl("convolution_backward_overrideable",
         torch::CppFunction::makeFromBoxedFunction<&convolution_backward>());
}

}  // namespace

// What Python calls through ctypes.
extern "C" {
void standin_hold(bool hold) {
  is_held = hold;
  for (int device = 0; device < kDevices; ++device) {
    for (Queue& queue : gpus[device].streams) queue.wake();
  }
}
// Queue a call of Python in the current stream.
void standin_launch(int device, bool (*call)()) {
  current_queue(device).push([call] {
    TORCH_CHECK(call(), "standin: a call of Python failed");
  });
}
// Where the bytes of an address are, for such a call.
void* standin_bytes(int device, char* address) {
  return gpus[device].memory + (address - gpus[device].hidden);
}
}

// Last in this file: `hooks` and the allocators exist before torch can call them.
static const bool is_registered = (at::RegisterPrivateUse1HooksInterface(hooks), true);
