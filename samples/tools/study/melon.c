/*
 * melon.c - the named study of Melon (Wang et al., MobiSys 2022): its parts, and its figures beside
 * ours.
 *
 * The paper's numbers: its abstract, and the scripts that it published with its artefact (batches
 * of MobileNetV2 and SqueezeNet in 5500 MB at 224 pixels). Of its convergence no number is known
 * here.
 */
#include "melon.h"

#define TUNED "0.001,0.002,0.005,0.01,0.02,0.05"
#define QUICK_TUNED "0.001,0.004,0.016"
#define POLICIES "none,pool,recompute,sublinear,vdnn,capuchin,melon,auto"
#define MODELS "mobilenet_v1,mobilenet_v2,squeezenet1_1,resnet50"
#define TRAINED "mobilenet_v2,squeezenet1_1"

const study_named study_melon = {
    .name = MELON,
    .title = "Melon (MobiSys 2022), figure by figure",
    .question = "Which of the paper's figures come out here, with this library, on this machine?",
    .method = "The paper ran MNN with its planner on four phones, CIFAR-100 and images of 224 "
              "pixels, and compared with "
              "vDNN, Sublinear and Capuchin; here all of them are policies of one executor. Its "
              "numbers are those of its "
              "abstract and of the scripts that were published with it. A range is what repeats, "
              "seeds and the size of the test set leave "
              "open. Each row's rule says what the word follows from.",
    .parts = {{.kind = &study_max_batch,
               .share = 1.0,
               .whole = {.models = MODELS, .budgets = "100%,150%", .policies = POLICIES},
               .quick = {.models = TRAINED, .budgets = "100%", .policies = POLICIES}},
              {.kind = &study_throughput,
               .share = 2.0,
               .whole = {.models = MODELS,
                         .budgets = "100%,150%",
                         .policies = "ideal," POLICIES,
                         .batches = "32,64,96,128"},
               .quick = {.models = TRAINED,
                         .budgets = "100%",
                         .policies = "ideal," POLICIES,
                         .batches = "32,64,96"}},
              {.kind = &study_convergence,
               .share = 4.0,
               .whole = {.models = TRAINED,
                         .budgets = "none:8",
                         .policies = "none,auto",
                         .batches = "8,32,128,price:1.1",
                         .rates = TUNED,
                         .augment = "crop=4,flip",
                         .epochs = 20,
                         .weight_decay = 5e-4},
               .quick = {.models = TRAINED,
                         .budgets = "none:8",
                         .policies = "none,auto",
                         .batches = "8,32",
                         .rates = QUICK_TUNED,
                         .augment = "crop=4,flip",
                         .epochs = 4,
                         .weight_decay = 5e-4}},
              {.kind = &study_federated,
               .share = 5.0,
               .whole = {.models = TRAINED,
                         .budgets = "none:8",
                         .policies = "none,auto",
                         .batches = "8,32",
                         .rates = TUNED,
                         .partitions = "iid,dirichlet:0.3",
                         .n_clients = 10,
                         .rounds = 40,
                         .weight_decay = 5e-4},
               .quick = {.models = "mobilenet_v2",
                         .budgets = "none:8",
                         .policies = "none,auto",
                         .batches = "8,32",
                         .rates = "0.005,0.02",
                         .partitions = "iid,dirichlet:0.3",
                         .n_clients = 4,
                         .rounds = 5,
                         .max_examples = 2000,
                         .weight_decay = 5e-4}},
              {.kind = &study_adaptation,
               .share = 1.0,
               .whole = {.models = MODELS},
               .quick = {.models = TRAINED}},
              {.kind = &study_ablation,
               .share = 2.0,
               .whole = {.models = MODELS, .budgets = "100%,75%"},
               .quick = {.models = TRAINED, .budgets = "100%"}}},
    .n_parts = 6,
    .claims_fn = melon_figures,
};
