/*
 * 06_from_cpp.cpp - the trainer from C++: handles that free themselves, errors as exceptions,
 * examples in a std::vector.
 *
 *     sample-06_from_cpp
 *
 * A network of two layers learns within 256 KiB which of two noisy spirals a point belongs to.
 * Everything here is C++11; the headers of the library are the same as for C.
 */
#include <dunlin/trainer.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

using Model = std::unique_ptr<dunlin_model, decltype(&dunlin_model_destroy)>;
using Trainer = std::unique_ptr<dunlin_trainer, decltype(&dunlin_trainer_destroy)>;

// Every failure of the library comes with one line that names the thing, its value and its limit.
void check(dunlin_status status, const dunlin_error &error)
{
    if (status != DUNLIN_OK) {
        throw std::runtime_error(std::string(dunlin_status_name(status)) + ": " + error.text);
    }
}

struct Point {
    float x[2];
    std::int32_t spiral;
};

std::vector<Point> make_spirals(std::size_t n)
{
    std::mt19937 random(7);
    std::normal_distribution<float> noise(0.0F, 0.03F);
    std::uniform_real_distribution<float> along(0.2F, 1.0F);
    std::vector<Point> points(n);
    for (std::size_t i = 0; i < n; i++) {
        const float r = along(random);
        const float angle = 7.0F * r + (i % 2 == 0 ? 0.0F : 3.14159265F);
        points[i] =
            Point{{r * std::cos(angle) + noise(random), r * std::sin(angle) + noise(random)},
                  static_cast<std::int32_t>(i % 2)};
    }
    return points;
}

// A source's callback is a plain function; what it reads is its context. It must not throw.
dunlin_status read_points(void *ctx, const std::int64_t *indices, std::int64_t n, void *out_x,
                          std::int32_t *out_y)
{
    const auto &points = *static_cast<const std::vector<Point> *>(ctx);
    for (std::int64_t i = 0; i < n; i++) {
        const Point &point = points[static_cast<std::size_t>(indices[i])];
        std::memcpy(static_cast<float *>(out_x) + 2 * i, point.x, sizeof point.x);
        out_y[i] = point.spiral;
    }
    return DUNLIN_OK;
}

Model make_network()
{
    dunlin_error error;
    dunlin_builder *builder = nullptr;
    if (dunlin_builder_create(nullptr, &builder) != DUNLIN_OK) {
        throw std::bad_alloc();
    }
    const dunlin_shape point = {1, {2}};
    dunlin_value x = dunlin_builder_input(builder, "point", &point);
    x = dunlin_builder_relu(builder, dunlin_builder_dense(builder, "hidden1", x, 64));
    x = dunlin_builder_relu(builder, dunlin_builder_dense(builder, "hidden2", x, 64));
    x = dunlin_builder_dense(builder, "spiral", x, 2);
    dunlin_model *model = nullptr;
    check(dunlin_builder_finish(builder, x, &model, &error),
          error); // the builder is gone in any case
    return Model(model, dunlin_model_destroy);
}

Trainer make_trainer(const Model &model)
{
    dunlin_error error;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.budget_bytes = 256 << 10;
    options.batch = 64;
    options.optimizer = DUNLIN_OPTIMIZER_ADAM;
    dunlin_trainer *trainer = nullptr;
    check(dunlin_trainer_create(model.get(), &options, &trainer, &error), error);
    return Trainer(trainer, dunlin_trainer_destroy);
}

int run()
{
    std::vector<Point> points = make_spirals(5120);
    dunlin_source source = DUNLIN_SOURCE_INIT;
    source.ctx = &points;
    source.read_fn = read_points;
    source.n_examples = 4096; // the last 1,024 are kept to evaluate on
    source.dtype = DUNLIN_F32;

    const Model model = make_network();
    const Trainer trainer = make_trainer(model);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 10;
    check(dunlin_trainer_fit(trainer.get(), &source, &fit, nullptr, nullptr),
          *dunlin_trainer_last_error(trainer.get()));

    dunlin_metrics metrics;
    source.n_examples = static_cast<std::int64_t>(points.size());
    check(dunlin_trainer_evaluate(trainer.get(), &source, 4096, 1024, &metrics),
          *dunlin_trainer_last_error(trainer.get()));
    std::printf("loss %.3f, accuracy %.1f %%\n", metrics.loss, 100.0 * metrics.accuracy);
    return metrics.accuracy > 0.95 ? 0 : 1;
}

} // namespace

int main()
{
    try {
        return run();
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return 1;
    }
}
