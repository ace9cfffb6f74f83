#include "prism/optim/registry.h"

#include <c10/util/StringUtil.h>

#include <functional>

#include "prism/optim/adagrad.h"
#include "prism/optim/adam.h"
#include "prism/optim/adamw.h"
#include "prism/optim/adaspectral.h"
#include "prism/optim/muon.h"
#include "prism/optim/prism.h"
#include "prism/optim/rmsprop.h"
#include "prism/optim/rmsspectral.h"
#include "prism/optim/shampoo.h"
#include "prism/optim/soap.h"
#include "prism/optim/ssd.h"
#include "prism/optim/tikhonov_muon.h"

namespace prism {
namespace {

struct Entry {
  std::function<std::unique_ptr<Options>()> options;
  std::function<std::unique_ptr<Optimizer>(const Parameters&, const Options&)> optimizer;
};

template <class Class, class O>
std::pair<std::string, Entry> entry() {
  return {O().name(),
          {[] { return std::make_unique<O>(); },
           [](const Parameters& parameters, const Options& options) {
             return std::make_unique<Class>(parameters, dynamic_cast<const O&>(options));
           }}};
}

const std::vector<std::pair<std::string, Entry>>& registry() {
  static const std::vector<std::pair<std::string, Entry>> all = {
      entry<Prism, PrismOptions>(),
      entry<Muon, MuonOptions>(),
      entry<TikhonovMuon, TikhonovMuonOptions>(),
      entry<AdamW, AdamWOptions>(),
      entry<Adam, AdamOptions>(),
      entry<AdaGrad, AdaGradOptions>(),
      entry<RMSprop, RMSpropOptions>(),
      entry<SSD, SSDOptions>(),
      entry<RMSspectral, RMSspectralOptions>(),
      entry<ADAspectral, ADAspectralOptions>(),
      entry<Shampoo, ShampooOptions>(),
      entry<SOAP, SOAPOptions>(),
  };
  return all;
}

const Entry& find(const std::string& name) {
  for (const auto& [key, value] : registry()) {
    if (key == name) return value;
  }
  TORCH_CHECK_VALUE(false, "unknown optimizer '", name, "'; expected one of ", c10::Join(", ", optimizer_names()));
}

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, value] : registry()) list.push_back(name);
    return list;
  }();
  return names;
}

std::unique_ptr<Options> make_options(const std::string& name, const Json& values) {
  auto options = find(name).options();
  options->from_json(values);
  return options;
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const Parameters& parameters, const Json& values) {
  return find(name).optimizer(parameters, *make_options(name, values));
}

}  // namespace prism
