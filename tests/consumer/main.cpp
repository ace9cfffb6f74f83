#include <prism/prism.h>
#include <torch/nn.h>

#include <iostream>

int main() {
  torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Linear(16, 1));
  prism::Mixed optimizer(model->named_parameters(), prism::PrismOptions(0.02), prism::AdamWOptions(0.005));
  model->forward(torch::ones({4, 8})).sum().backward();
  optimizer.step();
  std::cout << optimizer.routing();
}
