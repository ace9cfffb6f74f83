#pragma once

// Everything a program needs to train with Prism's optimizers.

#include "prism/optim/adagrad.h"
#include "prism/optim/adam.h"
#include "prism/optim/gradients.h"
#include "prism/optim/mixed.h"
#include "prism/optim/muon.h"
#include "prism/optim/prism.h"
#include "prism/optim/registry.h"
#include "prism/optim/rmsprop.h"
#include "prism/optim/schedule.h"
#include "prism/optim/shampoo.h"
#include "prism/optim/soap.h"
#include "prism/optim/spectral_descent.h"
