// A program in linalg on tensors: a product, a bias and relu, which become one kernel over tiles, then the softmax of each
// row, which becomes another. The sizes of the tiles are the planner's.
//
//     tilewright run examples/09_linalg.mlir --filecheck
//     tilewright run examples/09_linalg.mlir --filecheck --target reference
//     tilewright opt examples/09_linalg.mlir -p "linalg-to-xetile{target=xe-pvc}"

#all = affine_map<(i, j) -> (i, j)>
#column = affine_map<(i, j) -> (j)>

func.func @layer(%x: tensor<96x200xf32>, %w: tensor<200x80xf32>, %b: tensor<80xf32>) -> tensor<96x80xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<96x80xf32>
  %v = tensor.empty() : tensor<96xf32>
  %none = linalg.fill ins(%zero : f32) outs(%e : tensor<96x80xf32>) -> tensor<96x80xf32>
  %p = linalg.matmul ins(%x, %w : tensor<96x200xf32>, tensor<200x80xf32>) outs(%none : tensor<96x80xf32>) -> tensor<96x80xf32>
  %h = linalg.generic {indexing_maps = [#all, #column, #all], iterator_types = ["parallel", "parallel"]}
      ins(%p, %b : tensor<96x80xf32>, tensor<80xf32>) outs(%e : tensor<96x80xf32>) {
  ^bb0(%sum: f32, %bias: f32, %before: f32):
    %with = arith.addf %sum, %bias : f32
    %relu = arith.maximumf %with, %zero : f32
    linalg.yield %relu : f32
  } -> tensor<96x80xf32>
  %least = linalg.fill ins(%low : f32) outs(%v : tensor<96xf32>) -> tensor<96xf32>
  %top = linalg.reduce { arith.maximumf } ins(%h : tensor<96x80xf32>) outs(%least : tensor<96xf32>) dimensions = [1]
  %tops = linalg.broadcast ins(%top : tensor<96xf32>) outs(%e : tensor<96x80xf32>) dimensions = [1]
  %less = linalg.sub ins(%h, %tops : tensor<96x80xf32>, tensor<96x80xf32>) outs(%e : tensor<96x80xf32>) -> tensor<96x80xf32>
  %exp = linalg.exp ins(%less : tensor<96x80xf32>) outs(%e : tensor<96x80xf32>) -> tensor<96x80xf32>
  %start = linalg.fill ins(%zero : f32) outs(%v : tensor<96xf32>) -> tensor<96xf32>
  %total = linalg.reduce { arith.addf } ins(%exp : tensor<96x80xf32>) outs(%start : tensor<96xf32>) dimensions = [1]
  %totals = linalg.broadcast ins(%total : tensor<96xf32>) outs(%e : tensor<96x80xf32>) dimensions = [1]
  %r = linalg.div ins(%exp, %totals : tensor<96x80xf32>, tensor<96x80xf32>) outs(%e : tensor<96x80xf32>) -> tensor<96x80xf32>
  return %r : tensor<96x80xf32>
}

// Numbers between -1 and 1, by row and column.
func.func @numbers(%like: tensor<?x?xf32>, %a: i32) -> tensor<?x?xf32> {
  %r = linalg.generic {indexing_maps = [#all], iterator_types = ["parallel", "parallel"]} outs(%like : tensor<?x?xf32>) {
  ^bb0(%before: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %ii = arith.index_cast %i : index to i32
    %jj = arith.index_cast %j : index to i32
    %ai = arith.muli %ii, %a : i32
    %n = arith.addi %ai, %jj : i32
    %f = arith.sitofp %n : i32 to f32
    %s = math.sin %f : f32
    linalg.yield %s : f32
  } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}

func.func private @printMemrefF32(tensor<*xf32>)

// Each of 96 rows of a softmax sums to 1.
func.func @main() {
  %seven = arith.constant 7 : i32
  %three = arith.constant 3 : i32
  %zero = arith.constant 0.0 : f32
  %ex = tensor.empty() : tensor<96x200xf32>
  %ew = tensor.empty() : tensor<200x80xf32>
  %dx = tensor.cast %ex : tensor<96x200xf32> to tensor<?x?xf32>
  %dw = tensor.cast %ew : tensor<200x80xf32> to tensor<?x?xf32>
  %nx = call @numbers(%dx, %seven) : (tensor<?x?xf32>, i32) -> tensor<?x?xf32>
  %nw = call @numbers(%dw, %three) : (tensor<?x?xf32>, i32) -> tensor<?x?xf32>
  %x = tensor.cast %nx : tensor<?x?xf32> to tensor<96x200xf32>
  %w = tensor.cast %nw : tensor<?x?xf32> to tensor<200x80xf32>
  %b = arith.constant dense<0.25> : tensor<80xf32>
  %r = call @layer(%x, %w, %b) : (tensor<96x200xf32>, tensor<200x80xf32>, tensor<80xf32>) -> tensor<96x80xf32>
  %es = tensor.empty() : tensor<f32>
  %zs = linalg.fill ins(%zero : f32) outs(%es : tensor<f32>) -> tensor<f32>
  %s = linalg.reduce { arith.addf } ins(%r : tensor<96x80xf32>) outs(%zs : tensor<f32>) dimensions = [0, 1]
  %whole = linalg.round ins(%s : tensor<f32>) outs(%es : tensor<f32>) -> tensor<f32>
  %u = tensor.cast %whole : tensor<f32> to tensor<*xf32>
  // CHECK: 96
  call @printMemrefF32(%u) : (tensor<*xf32>) -> ()
  return
}
