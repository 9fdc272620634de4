// Layers of every format and mode on every instruction set of the machine, without Python, for the sanitizers
// (tools/sanitize.sh). Results are compared with a double-precision evaluation, with those of a repeated
// call, and with those of every other number of threads, bit by bit. With the argument "small" fewer shapes
// are tried.
#include <atomic>
#include <thread>

#include "native_reference.h"

namespace {

using namespace kt_test;
using kt::Experts;
using kt::Linear;
using kt::Mode;
using kt::Team;

std::vector<long> token_counts{1, 2, 7, 40};
long failures = 0, checks = 0;

void expect(bool holds, const std::string& what) {
  ++checks;
  if (holds) return;
  if (++failures <= 20) std::printf("FAIL: %s\n", what.c_str());
}

bool same_bits(const Exact<float>& a, const Exact<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::string describe(Form form, Mode mode, const std::string& isa, long rows, long columns, long tokens,
                     int threads) {
  return form.name() + (mode == kt::kFast ? " fast " : " exact ") + isa + ", " + std::to_string(rows) +
         " x " + std::to_string(columns) + ", " + std::to_string(tokens) + " tokens, " +
         std::to_string(threads) + " threads";
}

// Teams of 1 .. cores + 2 threads.
using Teams = std::vector<std::shared_ptr<Team>>;

void try_linear(Form form, Mode mode, const Teams& teams, long rows, long columns, Random& random) {
  const std::string isa = teams[0]->kernels().name;
  const Matrix matrix = random_matrix(form, rows, columns, random);
  const std::vector<double> weights = values_of(matrix);
  const Rounding rounding = rounding_of(form, mode, isa, columns);
  std::vector<Linear> linears;
  for (const auto& team : teams) linears.emplace_back(team, matrix.source, mode);
  for (const long tokens : token_counts) {
    const Exact<float> x = random_rows(tokens, columns, std::exp2(random.uniform(-6, 6)), random);
    std::vector<double> expected, bound;
    std::vector<double> row(static_cast<size_t>(columns));
    for (long t = 0; t < tokens; ++t) {
      for (long k = 0; k < columns; ++k)
        row[static_cast<size_t>(k)] = x[static_cast<size_t>(t * columns + k)];
      for (long r = 0; r < rows; ++r) {
        const Product p = multiply(weights.data() + r * columns, row.data(), columns);
        expected.push_back(p.value);
        bound.push_back(p.size * (rounding.relative + rounding.step) + 1e-30);
      }
    }
    const auto run = [&](const Linear& linear) {
      Exact<float> y(static_cast<size_t>(tokens * rows), 16);
      linear.forward(x.data(), tokens, y.data());
      return y;
    };
    const Exact<float> first = run(linears[0]);
    const double share = worst_share(first, expected, bound);
    expect(share <= 1, describe(form, mode, isa, rows, columns, tokens, 1) + ": error is " +
                           std::to_string(share) + " of the bound");
    for (size_t i = 0; i < linears.size(); ++i) {
      const auto what = [&](const char* how) {
        return describe(form, mode, isa, rows, columns, tokens, teams[i]->size()) + ": " + how;
      };
      expect(same_bits(first, run(linears[i])), what("differs from one thread"));
      // What an earlier call left behind in shared memory must not matter.
      Exact<float> dirt = random_rows(40, columns, 1e30, random), lost(static_cast<size_t>(40 * rows), 16);
      linears[i].forward(dirt.data(), 40, lost.data());
      expect(same_bits(first, run(linears[i])), what("differs when called again"));
      Exact<float> sum = random_rows(tokens, rows, 1, random), wanted(sum.size());
      for (size_t j = 0; j < sum.size(); ++j) wanted[j] = sum[j] + first[j];
      linears[i].forward(x.data(), tokens, sum.data(), true);
      expect(same_bits(sum, wanted), what("is not added"));
    }
  }
}

struct Layer {
  std::vector<std::unique_ptr<Experts>> by_team;
  std::vector<ExpertValues> values;
  std::vector<int> loaded;
  long hidden, intermediate;
};

Layer make_layer(Form form, Mode mode, const Teams& teams, long hidden, long intermediate, int count,
                 Random& random) {
  Layer layer{{}, std::vector<ExpertValues>(static_cast<size_t>(count)), {}, hidden, intermediate};
  for (const auto& team : teams)
    layer.by_team.push_back(std::make_unique<Experts>(team, kt::ExpertsShape{count,
                                                                             hidden,
                                                                             intermediate,
                                                                             {form.source, form.stored},
                                                                             {form.source, form.stored},
                                                                             mode,
                                                                             kt::kSilu}));
  for (int e = 0; e < count; ++e) {
    if (e && random.chance(0.4)) continue;
    const Matrix gate = random_matrix(form, intermediate, hidden, random);
    const Matrix up = random_matrix(form, intermediate, hidden, random);
    const Matrix down = random_matrix(form, hidden, intermediate, random);
    for (const auto& experts : layer.by_team) experts->load(e, gate.source, up.source, down.source);
    layer.values[static_cast<size_t>(e)] = {values_of(gate), values_of(up), values_of(down)};
    layer.loaded.push_back(e);
  }
  return layer;
}

struct Call {
  Exact<float> x, weights;
  Exact<int32_t> ids;
  long tokens, per_token;
  kt::Routing routing() const { return {ids.data(), weights.data(), tokens, per_token}; }
};

Call make_call(const Layer& layer, long tokens, long per_token, Random& random) {
  Call call{random_rows(tokens, layer.hidden, 1 / std::sqrt(static_cast<double>(layer.hidden)), random),
            random_rows(tokens, per_token, 1, random),
            Exact<int32_t>(static_cast<size_t>(tokens * per_token)), tokens, per_token};
  for (size_t i = 0; i < call.ids.size(); ++i)
    call.ids[i] =
        random.chance(0.15)
            ? -1
            : layer.loaded[static_cast<size_t>(random.below(static_cast<long>(layer.loaded.size())))];
  return call;
}

Exact<float> run(const Experts& experts, const Call& call) {
  Exact<float> y(static_cast<size_t>(call.tokens * experts.shape().hidden), 16);
  experts.forward(call.x.data(), call.routing(), y.data());
  return y;
}

void try_experts(Form form, Mode mode, const Teams& teams, long hidden, long intermediate, int count,
                 Random& random) {
  const std::string isa = teams[0]->kernels().name;
  const Layer layer = make_layer(form, mode, teams, hidden, intermediate, count, random);
  for (const long tokens : token_counts) {
    const Call call = make_call(layer, tokens, 1 + random.below(3), random);
    std::vector<double> expected, bound;
    expected_experts(layer.values, hidden, intermediate, call.x.data(), call.routing(),
                     rounding_of(form, mode, isa, std::max(hidden, intermediate)), expected, bound);
    const Exact<float> first = run(*layer.by_team[0], call);
    const double share = worst_share(first, expected, bound);
    expect(share <= 1, "experts " + describe(form, mode, isa, intermediate, hidden, tokens, 1) +
                           ": error is " + std::to_string(share) + " of the bound");
    for (size_t i = 0; i < teams.size(); ++i)
      for (int again = 0; again < 2; ++again)
        expect(same_bits(first, run(*layer.by_team[i], call)),
               "experts " + describe(form, mode, isa, intermediate, hidden, tokens, teams[i]->size()) +
                   ": differs");
  }
}

// Several threads call layers of one team and of others at the same time; each must get what it got alone.
void try_callers(const std::vector<Form>& forms, const Teams& teams, int rounds, Random& random) {
  std::atomic<long> wrong{0}, done{0};
  std::vector<Layer> layers;
  std::vector<Call> calls;
  std::vector<Exact<float>> alone;
  for (const Form form : forms) {
    const long align = kt::storage(form.source).source_align;
    const Mode mode = random.chance(0.5) ? kt::kFast : kt::kExact;
    layers.push_back(
        make_layer(form, mode, teams, std::max(align, 40l) / align * align, std::max(align, 24l), 3, random));
    calls.push_back(make_call(layers.back(), 1 + random.below(12), 2, random));
    alone.push_back(run(*layers.back().by_team[0], calls.back()));
  }
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < 4; ++caller)
    callers.emplace_back([&, caller] {
      for (int round = 0; round < rounds; ++round) {
        const size_t which = (caller + static_cast<size_t>(round)) % layers.size();
        // Two callers share the largest team, the others use another one each.
        const size_t team = caller < 2 ? teams.size() - 1 : (caller - 2) % teams.size();
        wrong += !same_bits(alone[which], run(*layers[which].by_team[team], calls[which]));
        ++done;
      }
    });
  for (std::thread& caller : callers) caller.join();
  expect(wrong == 0 && done == 4 * rounds, std::to_string(wrong) + " results of concurrent callers differ");
}

}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && std::string(argv[1]) == "small";
  if (small) token_counts = {1, 9};
  Random random(choose_seed());
  for (const std::string& isa : tested_isas()) {
    Teams teams;
    for (int threads = 1; threads <= most_threads(); ++threads)
      if (!small || threads == 1 || threads == most_threads()) teams.push_back(make_team(threads, isa));
    for (const Form form : all_forms()) {
      const long align = kt::storage(form.source).source_align;
      for (const Mode mode : {kt::kExact, kt::kFast}) {
        if (mode == kt::kFast && form.stored < kt::kMxfp4) continue;  // the same kernels
        std::vector<long> columns = edge_columns(form);
        std::vector<long> rows{1, 15, 16, 17, 33};
        if (small) {
          columns = {align > 32 ? align : columns.back()};
          rows = {17};
        }
        for (const long c : columns)
          for (const long r : rows) try_linear(form, mode, teams, r, c, random);
        if (align == 1) {
          try_experts(form, mode, teams, 37, 33, 4, random);
          if (!small) try_experts(form, mode, teams, 5, 3, 4, random);
          if (!small) try_experts(form, mode, teams, 132, 49, 4, random);
        } else if (!small || align == 32 || isa != "scalar") {
          try_experts(form, mode, teams, align, align, small ? 1 : 4, random);
          if (!small && align == 32) try_experts(form, mode, teams, 96, 160, 4, random);
        }
      }
    }
    const std::vector<Form> mixed{
        {kt::kFp8Block128, kt::kFp8Block128}, {kt::kBf16, kt::kInt4}, {kt::kQ8_0, kt::kQ8_0}};
    try_callers(mixed, teams, small ? 20 : 200, random);
    std::printf("%s: %ld checks, %ld failures\n", isa.c_str(), checks, failures);
    std::fflush(stdout);
  }
  return failures ? 1 : 0;
}
