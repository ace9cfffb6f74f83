#include "prism/optim/registry.h"

#include <c10/util/StringUtil.h>

#include <functional>

#include "prism/optim/adagrad.h"
#include "prism/optim/adam.h"
#include "prism/optim/muon.h"
#include "prism/optim/prism.h"
#include "prism/optim/rmsprop.h"
#include "prism/optim/shampoo.h"
#include "prism/optim/soap.h"
#include "prism/optim/spectral_descent.h"

namespace prism {
namespace {

struct Registration {
  OptimizerInfo info;
  std::function<std::unique_ptr<Options>()> options;
  std::function<std::unique_ptr<Optimizer>(const Parameters&, const Options&)> optimizer;
};

template <class O>
Registration registration(const char* class_name, const char* label, const char* summary) {
  return {{O().name(), class_name, label, summary},
          [] { return std::make_unique<O>(); },
          [](const Parameters& parameters, const Options& options) {
            return std::make_unique<OptimizerOf<O>>(parameters, dynamic_cast<const O&>(options));
          }};
}

const std::vector<Registration>& registry() {
  static const std::vector<Registration> all = {
      registration<PrismOptions>(
          "Prism", "PRISM",
          "PRISM: Muon's spectral descent, with directions damped by the noise of their gradients. For matrices."),
      registration<MuonOptions>("Muon", "Muon",
                                "Muon: spectral descent on the momentum; Prism with gamma=0. For matrices."),
      registration<TikhonovMuonOptions>("TikhonovMuon", "Tikhonov Muon",
                                        "Muon with uniform damping in place of PRISM's. For matrices."),
      registration<AdamWOptions>("AdamW", "AdamW", "torch.optim.AdamW: Adam with decoupled weight decay."),
      registration<AdamOptions>("Adam", "Adam", "torch.optim.Adam: weight decay is added to the gradient."),
      registration<AdaGradOptions>("AdaGrad", "AdaGrad", "torch.optim.Adagrad: weight decay is added to the gradient."),
      registration<RMSpropOptions>("RMSprop", "RMSprop", "torch.optim.RMSprop: weight decay is added to the gradient."),
      registration<SSDOptions>(
          "SSD", "SSD",
          "Stochastic spectral descent: steps of the gradient's nuclear norm along its polar factor. For matrices."),
      registration<RMSspectralOptions>(
          "RMSspectral", "RMSspectral",
          "Spectral descent in coordinates scaled by a running second moment. For matrices."),
      registration<ADAspectralOptions>(
          "ADAspectral", "ADAspectral",
          "Spectral descent in coordinates scaled by a summed second moment. For matrices."),
      registration<ShampooOptions>("Shampoo", "Shampoo",
                                   "Shampoo: both sides of the gradient whitened by fourth roots. For matrices."),
      registration<SOAPOptions>("SOAP", "SOAP", "SOAP: Adam in Shampoo's eigenbasis. For matrices."),
  };
  return all;
}

const Registration& find(const std::string& name) {
  for (const auto& candidate : registry()) {
    if (candidate.info.name == name) return candidate;
  }
  TORCH_CHECK_VALUE(false, "unknown optimizer '", name, "'; expected one of ", c10::Join(", ", optimizer_names()));
}

}  // namespace

const std::vector<OptimizerInfo>& optimizers() {
  static const std::vector<OptimizerInfo> list = [] {
    std::vector<OptimizerInfo> infos;
    for (const auto& one : registry()) infos.push_back(one.info);
    return infos;
  }();
  return list;
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& one : registry()) list.push_back(one.info.name);
    return list;
  }();
  return names;
}

std::unique_ptr<Options> make_options(const std::string& name, const Json& values) {
  auto options = find(name).options();
  options->from_json(values);
  return options;
}

std::unique_ptr<Options> make_mixed_options(const std::string& name, const Json& values) {
  auto options = find(name).options();
  options->set_values(values);
  options->use_mixed_defaults();
  options->check();
  return options;
}

std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const Parameters& parameters, const Json& values) {
  return find(name).optimizer(parameters, *make_options(name, values));
}

}  // namespace prism
