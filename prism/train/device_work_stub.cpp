#include "prism/train/device_work.h"

namespace prism::train {

std::unique_ptr<DeviceWork> DeviceWork::make(at::Device device) { return plain_work(device); }

}  // namespace prism::train
